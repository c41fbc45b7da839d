"""Types of command-line arguments, whose errors say what is allowed."""

import argparse
import math


def positive_int(text: str) -> int:
    """A whole number from 1 on."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number from 1 on")
    return int(text)


def clip_distance(text: str) -> int:
    """A whole number from 0 on."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is not a whole number from 0 on; 0 switches relative positions off")
    return int(text)


def cell_count(text: str) -> int:
    """A whole number from 0 on."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is not a whole number from 0 on; 0 sets no limit")
    return int(text)


def probability(text: str) -> float:
    """A number in [0, 1)."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < 1.0:
        raise argparse.ArgumentTypeError(f"{text} is not a probability in [0, 1)")
    return value


def length_penalty(text: str) -> float:
    """A number whose power of a length is one, too: 1024 ** 103 has no place in double precision."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not -100 <= value <= 100:
        raise argparse.ArgumentTypeError(f"{text} is not a number from -100 to 100")
    return value
