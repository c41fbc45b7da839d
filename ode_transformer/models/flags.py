"""Flags of the options of depth, all made from the fields of ``DepthChoice``, and the choices that they make."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ode_transformer.nn import DepthChoice, Option
from ode_transformer.support.arguments import finite_float, non_negative_int, positive_float, positive_int
from ode_transformer.support.errors import OptionError

RULE = (
    "A flag of depth, such as --ode-function, sets both stacks; a stack that has no use for it ignores it. With the "
    "name of a stack in front, such as --decoder-ode-function, it sets that stack alone."
)
_NUMBERS: dict[tuple[type, str], Callable[[str], float]] = {
    (int, "positive"): positive_int,
    (int, "non-negative"): non_negative_int,
    (float, "positive"): positive_float,
    (float, "any"): finite_float,
}
_LISTED = 10  # values that a usage line shows


def depth_defaults() -> dict[str, Any]:
    """Return the options of the short flags with their defaults."""
    return {option.dest(): option.default for option in DepthChoice.options().values() if not option.own_flag_only}


def add_depth_flags(parser: argparse.ArgumentParser, stacks: Sequence[str]) -> None:
    """Add the flags of a model that has these stacks: a short one for all, and one for each."""
    parser.description = RULE
    for option in DepthChoice.options().values():
        prefixes = [f"{stack}-" for stack in stacks] if option.own_flag_only else ["", *(f"{s}-" for s in stacks)]
        for prefix in () if option.fairseqs else prefixes:
            settings = _settings(option)
            if prefix and not option.own_flag_only:
                settings["help"] = argparse.SUPPRESS
            parser.add_argument(f"--{prefix}{option.flag}", **settings)


def _settings(option: Option) -> dict[str, Any]:
    """Return what argparse has to know of a flag."""
    if isinstance(option.default, bool):
        return {"help": option.help, "action": argparse.BooleanOptionalAction}
    if option.values is None:
        number = type(option.default)
        return {
            "help": option.help,
            "type": _NUMBERS[number, option.interval],
            "metavar": "N" if number is int else "X",
        }
    values = tuple(option.values())
    if len(values) <= _LISTED:
        return {"help": option.help, "choices": values}
    return {"help": f"{option.help}: {', '.join(values)}", "choices": values, "metavar": "NAME"}


def read_choices(args: argparse.Namespace, stacks: Sequence[str]) -> dict[str, DepthChoice]:
    """Return the choice of each stack.

    :param args: options of an architecture, as :func:`add_depth_flags` names them
    :raises OptionError: a stack's own flag is of no use to it, a short flag to no stack, or options of a stack do not
        go together
    """
    choices = {stack: DepthChoice() for stack in stacks}
    # A Reformer's encoder may have no layers, which read nothing.
    layered = [stack for stack in stacks if getattr(args, f"{stack}_layers", None) != 0]
    for option in DepthChoice.options().values():
        uses = {stack: option.read_by(choice) for stack, choice in choices.items()}
        most = max(uses[stack] for stack in layered)
        short_value = None if option.own_flag_only else _read(option, args)
        short = option.default if short_value is None else short_value
        if short != option.default and not most:
            raise OptionError(f"{_shown(option, short)}: only with {option.needs}; pass {_off(option)}")
        for stack, choice in choices.items():
            stack_value = _read(option, args, stack)
            if stack_value is not None and stack_value != option.default and not uses[stack]:
                raise OptionError(
                    f"{_shown(option, stack_value, stack)}: only with {option.needs}, not with {choice.scheme}"
                )
            value = (
                stack_value
                if stack_value is not None
                else short
                if uses[stack] and uses[stack] >= most
                else option.default
            )
            try:
                changed = value != choice.value(option)
                choices[stack] = replace(choice, **choice.change(option, value)) if changed else choice
            except ValueError as error:
                raise OptionError(f"--{stack}-ode-scheme {choice.scheme}: {error}") from error
    return choices


def _read(option: Option, args: argparse.Namespace, stack: str = "") -> Any:
    """Return the value of a flag, None if there is none; Python code may give a whole number for any number."""
    value = getattr(args, option.dest(stack), None)
    return None if value is None else type(option.default)(value)


def _shown(option: Option, value: Any, stack: str = "") -> str:
    flag = f"--{stack}-{option.flag}" if stack else f"--{option.flag}"
    return flag if value is True else f"{flag} {value}"


def _off(option: Option) -> str:
    """Return the flag that undoes what an architecture sets."""
    return f"--no-{option.flag}" if option.default is False else f"--{option.flag} {option.default}"
