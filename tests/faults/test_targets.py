"""A sample of fuzzing; ``tests/faults/fuzz.py`` runs as many inputs as one likes."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from mutations import mutate
from targets import TARGETS

from ode_transformer.cli.command import error_message

CASES = Path(__file__).parent / "cases"  # inputs that once ended otherwise, called TARGET-DIGEST


@pytest.mark.parametrize("name", TARGETS)
def test_a_parser_accepts_its_seeds_and_ends_in_one_line_otherwise(name: str) -> None:
    seeds, parse = TARGETS[name]
    generator = random.Random(name)
    cases = [path.read_bytes() for path in sorted(CASES.glob(f"{name.replace(' ', '_')}-*"))]
    for data in [*seeds, *cases, *(mutate(generator, seeds) for _ in range(40))]:
        assert is_one_line(error_of(parse, data)), data


def error_of(parse: Callable[[bytes], None], data: bytes) -> str | None:
    """Return the message of a parser's refusal as the command line prints it; None if there is none."""
    try:
        parse(data)
    except (Exception, SystemExit) as error:
        return error_message(error)
    return None


def is_one_line(message: str | None) -> bool:
    return message is None or (0 < len(message) < 2000 and "\n" not in message)
