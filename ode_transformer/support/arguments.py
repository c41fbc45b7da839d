"""Types of command-line arguments, whose errors say what is allowed."""

import argparse
import math
from collections.abc import Callable

PIECES = ("sentencepiece", "subword_nmt", "wordpiece", "_EOW", "@@ ")


def positive_int(text: str) -> int:
    """A whole number from 1 on."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number from 1 on")
    return int(text)


def language_code(text: str) -> str:
    """Two small letters."""
    if not (len(text) == 2 and text.isascii() and text.islower()):
        raise argparse.ArgumentTypeError(f"{text} is not a language code, such as de")
    return text


def natural(text: str, zero: str = "") -> int:
    """A whole number from 0 on; ``zero`` says what 0 means."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is not a whole number from 0 on{zero and f'; {zero}'}")
    return int(text)


def clip_distance(text: str) -> int:
    """A whole number from 0 on."""
    return natural(text, "0 switches relative positions off")


def log_interval(text: str) -> int:
    """A whole number from 0 on."""
    return natural(text, "0 logs nothing")


def cell_count(text: str) -> int:
    """A whole number from 0 on."""
    return natural(text, "0 sets no limit")


def positive_float(text: str) -> float:
    """A finite number above 0."""
    return _number(text, lambda value: 0 < value < math.inf, "a positive number")


def finite_float(text: str) -> float:
    """A number."""
    return _number(text, math.isfinite, "a number")


def probability(text: str) -> float:
    """A number in [0, 1)."""
    return _number(text, lambda value: 0 <= value < 1, "a probability in [0, 1)")


def share(text: str) -> float:
    """Parse a number between 0 and 1, neither of them included."""
    return _number(text, lambda value: 0 < value < 1, "a number between 0 and 1")


def length_penalty(text: str) -> float:
    """A number whose power of a length is one, too: 1024 ** 103 has no place in double precision."""
    return _number(text, lambda value: -100 <= value <= 100, "a number from -100 to 100")


def _number(text: str, allowed: Callable[[float], bool], described: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not allowed(value):
        raise argparse.ArgumentTypeError(f"{text} is not {described}")
    return value


def add_search_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of a command that decodes a part of a binarised data set."""
    parser.add_argument(
        "--remove-bpe", nargs="?", const="@@ ", choices=PIECES, help="join pieces, as fairseq-generate does"
    )
    parser.add_argument("--beam", type=positive_int, default=5, help="width of the search (default: 5)")
    parser.add_argument("--lenpen", type=length_penalty, default=1.0, help="above 1 favours long ones (default: 1)")
    parser.add_argument("--max-len-b", type=positive_int, default=200, help="tokens in a translation (default: 200)")
    parser.add_argument(
        "--batch-size", type=positive_int, default=32, help="lines in a batch of the search (default: 32)"
    )
    parser.add_argument("--source-lang", metavar="LANG", help="where neither a checkpoint nor DATA names it")
    parser.add_argument("--target-lang", metavar="LANG", help="likewise")
    parser.add_argument("--cpu", action="store_true", help="use no GPU")
