"""Types of command-line arguments; their errors say which values are allowed."""

import argparse
import ast
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from threading import TIMEOUT_MAX

from ode_transformer.support.errors import shorten
from ode_transformer.support.subword_models import SUBWORD_MODELS

LARGEST_INT = 2**31 - 1  # no count or size of any option can be larger
BEAM, LENGTH_PENALTY, MAX_WORDS = 5, 1.0, 200  # of a search, unless the user chooses
BPE_FORMATS = ("sentencepiece", "subword_nmt", "wordpiece", "_EOW", "@@ ", "none")


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


def positive_int(text: str) -> int:
    """Parse a whole number from 1 on."""
    return _whole_number(text, 1)


def language_code(text: str) -> str:
    """Parse a language code: two small letters."""
    if not (len(text) == 2 and text.isascii() and text.isalpha() and text.islower()):
        raise argparse.ArgumentTypeError(f"{shorten(text, 60)} is not a language code, such as de")
    return text


def non_negative_int(text: str, zero: str = "") -> int:
    """Parse a whole number from 0 on.

    :param zero: what 0 means, for the error
    """
    return _whole_number(text, 0, zero and f"; {zero}")


def whole_numbers(text: str) -> tuple[int, ...]:
    """Parse different whole numbers from 0 on, such as ``1,2,3``."""
    try:
        numbers = tuple(non_negative_int(number) for number in text.split(","))
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{shorten(text, 60)}: expected whole numbers divided by commas") from error
    if len(set(numbers)) < len(numbers):
        raise argparse.ArgumentTypeError(f"{shorten(text, 60)}: a number stands twice")
    return numbers


def rising_numbers(text: str) -> list[int]:
    """Parse whole numbers above 0 in rising order, separated by commas."""
    numbers = [int(word) if word.isdecimal() else 0 for word in text.split(",")]
    if numbers[0] < 1 or any(left >= right for left, right in pairwise(numbers)):
        raise argparse.ArgumentTypeError(f"{text}: expected rising whole numbers from 1 on, separated by commas")
    return numbers


def named_path(text: str) -> tuple[str, Path]:
    """Parse ``[NAME=]PATH``; without a name, or if a path with that ``=`` exists, the name is empty."""
    name, separator, path = text.partition("=")
    return (name, Path(path)) if separator and not Path(text).exists() else ("", Path(text))


def add_systems(parser: argparse.ArgumentParser, kind: str) -> None:
    """Add the systems of a command that takes several; ``args.systems`` are names, empty by default, and paths.

    :param kind: what a path names, such as ``checkpoint``
    """
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
        common = min(map(len, parts))
        first = next((n for n in range(common) if len({p[n] for p in parts}) > 1), common)
        last = next((n for n in range(1, common - first) if len({p[-n] for p in parts}) > 1), common - first)
        default_names = ["/".join(p[first : len(p) - last + 1]) or p[-1] for p in parts]
    return [name or default for (name, _), default in zip(systems, default_names, strict=True)]


def clip_distance(text: str) -> int:
    """Parse the largest relative position, 0 for none."""
    return non_negative_int(text, "0 switches relative positions off")


def log_interval(text: str) -> int:
    """Parse the number of updates between two records, 0 for no record."""
    return non_negative_int(text, "0 logs nothing")


def cell_count(text: str) -> int:
    """Parse the largest number of cells of a batch, 0 for no limit."""
    return non_negative_int(text, "0 sets no limit")


def positive_float(text: str) -> float:
    """Parse a finite number above 0."""
    return _number(text, lambda value: 0 < value < math.inf, "a positive number")


def non_negative_float(text: str) -> float:
    """Parse a finite number from 0 on."""
    return _number(text, lambda value: 0 <= value < math.inf, "a number from 0 on")


def decay_rates(text: str) -> tuple[float, float]:
    """Parse Adam's two decay rates, such as ``(0.9, 0.98)``."""
    try:
        first, second = (probability(str(number)) for number in ast.literal_eval(text))
    except (argparse.ArgumentTypeError, SyntaxError, TypeError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{shorten(text, 60)}: expected two numbers in [0, 1)") from error
    return first, second


def waiting_time(text: str) -> float:
    """Parse a number of seconds for which a thread can be waited for, at most some 290 years."""
    allowed = f"a number of seconds above 0 and up to {TIMEOUT_MAX:.0f}"
    return _number(text, lambda value: 0 < value <= TIMEOUT_MAX, allowed)


def finite_float(text: str) -> float:
    """Parse a finite number."""
    return _number(text, math.isfinite, "a number")


def probability(text: str) -> float:
    """Parse a number in [0, 1)."""
    return _number(text, lambda value: 0 <= value < 1, "a probability in [0, 1)")


def share(text: str) -> float:
    """Parse a number between 0 and 1, neither of them included."""
    return _number(text, lambda value: 0 < value < 1, "a number between 0 and 1")


def length_penalty(text: str) -> float:
    """Parse an exponent of lengths, so small that powers of lengths stay finite in double precision."""
    return _number(text, lambda value: -100 <= value <= 100, "a number from -100 to 100")


def _whole_number(text: str, least: int, explanation: str = "") -> int:
    digits = text.lstrip("0") or "0"
    number = None
    if text.isdecimal():  # more than 4,300 digits would make int() fail
        number = int(digits) if len(digits) <= len(str(LARGEST_INT)) else LARGEST_INT + 1
    if number is None or number < least:
        raise argparse.ArgumentTypeError(f"{shorten(text, 60)} is not a whole number from {least} on{explanation}")
    if number > LARGEST_INT:
        raise argparse.ArgumentTypeError(f"{shorten(text, 60)} is too large: at most {LARGEST_INT} is allowed")
    return number


def _number(text: str, is_allowed: Callable[[float], bool], allowed: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not is_allowed(value):
        raise argparse.ArgumentTypeError(f"{shorten(text, 60)} is not {allowed}")
    return value


def add_search_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of a command that decodes a split of a binarised data set."""
    parser.add_argument(
        "--remove-bpe",
        nargs="?",
        const="@@ ",
        choices=BPE_FORMATS,
        help="how pieces are joined to words, as in fairseq-generate; none: not at all (default: by the marks of the "
        "pieces in the target dictionary)",
    )
    add_beam_arguments(parser)
    add_language_arguments(parser)


def add_beam_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of a beam search and of where it runs."""
    parser.add_argument("--beam", type=positive_int, default=BEAM, help="beam size (default: %(default)s)")
    parser.add_argument(
        "--lenpen",
        type=length_penalty,
        default=LENGTH_PENALTY,
        help="length penalty; above 1 favours long outputs (default: %(default)g)",
    )
    parser.add_argument(
        "--max-len-b", type=positive_int, default=MAX_WORDS, help="tokens of an output, at most (default: %(default)s)"
    )
    parser.add_argument(
        "--batch-size", type=positive_int, default=32, help="sentences of a batch (default: %(default)s)"
    )
    parser.add_argument("--cpu", action="store_true", help="use no GPU")


def add_language_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the languages of a model."""
    parser.add_argument("--source-lang", metavar="LANG", help="source language, if checkpoint and DATA do not name it")
    parser.add_argument("--target-lang", metavar="LANG", help="target language, likewise")


def add_pieces_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option of a command that reads a system's output, which may be in pieces."""
    parser.add_argument(
        "--remove-bpe",
        choices=(*SUBWORD_MODELS, "none"),
        help="pieces of the output that are joined to words; none: leave them (default: as their marks show)",
    )


def add_train_flags(
    parser: argparse.ArgumentParser, help_text: str = "flags of fairseq-train, which override all others"
) -> None:
    """Declare that a command passes the words after ``--`` to fairseq-train; ``args.train_flags`` holds them."""
    parser.add_argument("train_flags", nargs="*", default=(), metavar="-- FLAGS", help=help_text)
