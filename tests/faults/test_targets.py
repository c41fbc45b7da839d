"""A sample of fuzzing; ``tests/faults/fuzz.py`` runs as many inputs as one likes."""

import random

import pytest
from mutations import mutate
from targets import TARGETS

from ode_transformer.support.errors import UserError


@pytest.mark.parametrize("name", TARGETS)
def test_a_parser_accepts_its_seeds_and_ends_in_one_line_otherwise(name: str) -> None:
    seeds, parse = TARGETS[name]
    generator = random.Random(name)
    for data in [*seeds, *(mutate(generator, seeds) for _ in range(40))]:
        try:
            parse(data)
        except UserError as error:
            assert str(error), data
            assert "\n" not in str(error), data
            assert len(str(error)) < 2000, data
