"""Types of command-line arguments; their errors say which values are allowed."""

import argparse
import math
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from ode_transformer.support.errors import UserError, one_line
from ode_transformer.support.subword_models import SUBWORD_MODELS

BEAM, LENGTH_PENALTY = 5, 1.0  # of a search, unless the user chooses
# a and b: an output has at most a · n + b tokens for a source of n. Normal ones are far shorter; those of an untrained
# model, which finds no end, are as long.
MAX_LENGTH = (2.0, 50)
MAX_WORDS = 200  # b alone, as fairseq's
BPE_FORMATS = ("sentencepiece", "subword_nmt", "wordpiece", "_EOW", "@@ ", "none")

Number = TypeVar("Number", int, float)
Condition = Callable[[Number], bool]


def flag_name(option: str) -> str:
    """Return the flag of an option: ``--max-positions`` for ``max_positions``."""
    return f"--{option.replace('_', '-')}"


def option_names(parser: argparse.ArgumentParser) -> list[str]:
    """Return the names of a parser's options and of those of its subcommands, such as ``-a`` and ``--arch``."""
    names = [name for action in parser._actions for name in action.option_strings]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            names += [name for subcommand in action.choices.values() for name in option_names(subcommand)]
    return names


def _number(kind: Callable[[str], Number], is_allowed: Condition[Number], allowed: str) -> Callable[[str], Number]:
    """Return the type of an argument that is a number; the error for others says what is ``allowed``."""

    def parse(text: str) -> Number:
        with suppress(ValueError):
            if is_allowed(value := kind(text)):
                return value
        raise argparse.ArgumentTypeError(f"{one_line(text, 60)} is not {allowed}")

    return parse


whole_number = _number(int, lambda value: True, "a whole number")
positive_int = _number(int, lambda value: value >= 1, "a whole number from 1 on")
non_negative_int = _number(int, lambda value: value >= 0, "a whole number from 0 on")
positive_float = _number(float, lambda value: 0 < value < math.inf, "a positive number")
non_negative_float = _number(float, lambda value: 0 <= value < math.inf, "a number from 0 on")
finite_float = _number(float, math.isfinite, "a number")
probability = _number(float, lambda value: 0 <= value < 1, "a probability in [0, 1)")


def whole_numbers(text: str) -> tuple[int, ...]:
    """Parse different whole numbers from 0 on, such as ``1,2,3``."""
    return tuple(dict.fromkeys(non_negative_int(number) for number in text.split(",")))


def rising_numbers(text: str) -> list[int]:
    """Parse different whole numbers from 1 on, such as ``1,2,3``; return them in rising order."""
    return sorted({positive_int(number) for number in text.split(",")})


def check_within(flag: str, numbers: Sequence[int], count: int) -> None:
    """Refuse numbers of sentences, in rising order, that are not there."""
    if numbers and numbers[-1] > count:
        raise UserError(f"{flag} {numbers[-1]}: the sentences are 1 to {count}")


def named_path(text: str) -> tuple[str, Path]:
    """Parse ``[NAME=]PATH``; without a name, or if a path with that ``=`` exists, the name is empty."""
    name, separator, path = text.partition("=")
    return (name, Path(path)) if separator and not Path(text).exists() else ("", Path(text))


def add_systems(parser: argparse.ArgumentParser, kind: str) -> None:
    """Add the systems of a command that takes several; ``args.systems`` are names, empty by default, and paths."""
    help_text = f"{kind} of each system, with a name in front of it if wanted: Euler=runs/euler (default: its folder)"
    parser.add_argument("systems", nargs="+", type=named_path, metavar="[NAME=]PATH", help=help_text)


def system_names(systems: Sequence[tuple[str, Path]]) -> list[str]:
    """Return a name for each of some named paths: the one given, else the folders in which it differs from the others.

    For a single path this is the last folder whose name says something.
    """
    parts = [(path if path.is_dir() else path.with_suffix("")).absolute().parts for _, path in systems]
    if len(set(parts)) == 1:
        folders = parts[0] if systems[0][1].is_dir() else parts[0][:-1]
        telling = [folder for folder in folders if folder not in ("/", "model", "checkpoints")]
        default_names = [telling[-1] if telling else parts[0][-1]] * len(parts)
    else:
        first = len(os.path.commonprefix(parts))
        last = len(os.path.commonprefix([p[first + 1 :][::-1] for p in parts]))
        default_names = ["/".join(p[first : len(p) - last]) or p[-1] for p in parts]
    return [name or default for (name, _), default in zip(systems, default_names, strict=True)]


def named_systems(args: argparse.Namespace) -> dict[str, Path]:
    """Return the systems of the command line by name."""
    names = system_names(args.systems)
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"{twice[0]}: two systems of this name")
    return {name: path for name, (_, path) in zip(names, args.systems, strict=True)}


def add_search_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of a command that decodes a split of a binarised data set."""
    pieces = (
        "how pieces are joined to words, as in fairseq-generate; none: not at all (default: by the marks of the pieces "
        "in the target dictionary)"
    )
    parser.add_argument("--remove-bpe", nargs="?", const="@@ ", choices=BPE_FORMATS, help=pieces)
    add_beam_arguments(parser)
    add_language_arguments(parser)


def add_beam_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of a beam search and of where it runs."""
    add, penalty = parser.add_argument, "length penalty; above 1 favours long outputs (default: %(default)g)"
    add("--beam", type=positive_int, default=BEAM, help="beam size (default: %(default)s)")
    add("--lenpen", type=finite_float, default=LENGTH_PENALTY, help=penalty)
    limit = "an output has at most A · n + B tokens for a source of n"
    defaults = "(default: {:g} and {}; only one of them given: 0 and {})".format(*MAX_LENGTH, MAX_WORDS)
    add("--max-len-a", type=finite_float, metavar="A", help=f"{limit} {defaults}")
    add("--max-len-b", type=positive_int, metavar="B", help="see --max-len-a")
    add("--batch-size", type=positive_int, default=32, help="sentences of a batch (default: %(default)s)")
    add("--cpu", action="store_true", help="use no GPU")


def length_limit(a: float | None, b: int | None) -> tuple[float, int]:
    """Return ``--max-len-a`` and ``--max-len-b`` of a search: both defaults, or fairseq's beside the one given."""
    return MAX_LENGTH if a is None and b is None else (a or 0.0, MAX_WORDS if b is None else b)


def add_language_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the languages of a model."""
    parser.add_argument("--source-lang", metavar="LANG", help="source language, if checkpoint and DATA do not name it")
    parser.add_argument("--target-lang", metavar="LANG", help="target language, likewise")


def add_pieces_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option of a command that reads a system's output, which may be in pieces."""
    pieces = "pieces of the output that are joined to words; none: leave them (default: as their marks show)"
    parser.add_argument("--remove-bpe", choices=(*SUBWORD_MODELS, "none"), help=pieces)


def add_train_flags(
    parser: argparse.ArgumentParser, help_text: str = "flags of fairseq-train, which override all others"
) -> None:
    """Declare that a command passes the words after ``--`` to fairseq-train; ``args.train_flags`` holds them."""
    parser.add_argument("train_flags", nargs="*", default=(), metavar="-- FLAGS", help=help_text)
