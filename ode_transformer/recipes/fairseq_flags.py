"""What fairseq's commands accept: whether a recipe's flags are theirs, and what a whole command line means."""

from __future__ import annotations

import argparse
import contextlib
import io
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from ode_transformer.support import commands
from ode_transformer.support.arguments import (
    length_penalty,
    non_negative_int,
    positive_float,
    positive_int,
    probability,
)
from ode_transformer.support.errors import UserError

# Values that fairseq's parser takes, but no training or search can.
RANGES: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("dropout", "attention-dropout", "activation-dropout", "label-smoothing"), probability),
    **dict.fromkeys(("word-dropout-prob",), probability),
    **dict.fromkeys(("max-tokens", "max-update", "max-epoch", "beam", "max-len-b", "tokens-per-sample"), positive_int),
    **dict.fromkeys(("warmup-updates", "patience", "no-repeat-ngram-size", "min-len", "seed"), non_negative_int),
    **dict.fromkeys(("lr", "adam-eps"), positive_float),
    "lenpen": length_penalty,
}


@lru_cache
def parser_of(program: str, words: tuple[str, ...]) -> argparse.ArgumentParser:
    """The parser of one of fairseq's commands with the options that the words call for, such as an architecture's.

    :param program: fairseq-train, fairseq-generate or fairseq-eval-lm
    :raises UserError: a word names an architecture, task, criterion or optimizer that does not exist
    """
    from fairseq import options

    parser = _parser(program)
    _quietly(lambda: options.parse_args_and_arch(parser, ["data", *words], parse_known=True))
    return parser


def parse(program: str, words: Sequence[str]) -> argparse.Namespace:
    """What a command line means to fairseq.

    :raises UserError: fairseq does not accept it; its own words
    """
    from fairseq import options

    return _quietly(lambda: options.parse_args_and_arch(_parser(program), list(words)))


def _parser(program: str) -> argparse.ArgumentParser:
    from fairseq import options

    import ode_transformer.models  # noqa: F401

    make = {
        "fairseq-train": options.get_training_parser,
        "fairseq-generate": options.get_generation_parser,
        "fairseq-eval-lm": options.get_eval_lm_parser,
    }
    return make[program]()


def _quietly(work: Callable[[], Any]) -> Any:
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return work()
    except SystemExit as error:
        lines = [line for line in complaint.getvalue().splitlines() if line.strip()]
        raise UserError(lines[-1].rpartition("error: ")[2] if lines else "refused") from error


def problem(parser: argparse.ArgumentParser, name: str, value: Any) -> str | None:
    """What is wrong with a flag, as a recipe has it; None if nothing is."""
    action = parser._option_string_actions.get(f"--{name}")
    if action is None:
        return "fairseq has no such flag here"
    takes_none = action.nargs == 0
    if takes_none != isinstance(value, bool):
        return f"{value!r}: expected true or false" if takes_none else f"{value!r}: expected a value"
    if takes_none:
        return None
    try:
        # There is no other way to ask argparse about a single value.
        read = parser._get_value(action, str(value))
        parser._check_value(action, read)
        if name in RANGES:
            RANGES[name](str(value))
    except (argparse.ArgumentError, argparse.ArgumentTypeError) as error:
        return getattr(error, "message", None) or str(error)
    return None


def essential(flags: Mapping[str, Any]) -> tuple[str, ...]:
    """Those flags that decide which further ones there are."""
    kinds = ("task", "arch", "criterion", "optimizer", "lr-scheduler")
    return tuple(commands.flags({name: flags[name] for name in kinds if name in flags}))
