"""Every tableau is consistent and reaches the order that it states."""

import dataclasses
import math
from fractions import Fraction

import pytest
from schemes_for_tests import error_after

from ode_transformer.numerics import (
    TABLEAUS,
    ButcherTableau,
    RungeKutta,
    get_tableau,
    register_tableau,
    tableau_names,
)
from ode_transformer.numerics.order_conditions import order_of_tableau, trees


@pytest.mark.parametrize("scheme", TABLEAUS, ids=lambda t: t.name)
def test_measured_order_is_the_stated_one(scheme: ButcherTableau) -> None:
    """Order 0 is a fact too: the rule does not converge."""
    coarse, fine = (error_after(RungeKutta(scheme), steps) for steps in (64, 128))
    assert math.log2(coarse / fine) == pytest.approx(scheme.order, abs=0.1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"a": ((), (0.5,)), "c": (0.0, 1.0)}, "must have 1 entries that sum to 1.0"),
        ({"b": (0.5, 0.6)}, "weights b sum to 1.1"),
        ({"b": (1.0,)}, "one entry for each stage"),
        ({"order": 3}, "tableau heun: its order is 2, not 3"),
        ({"order": 1}, "tableau heun: its order is 2, not 1"),
        ({"b": (0.25, 0.75)}, "tableau heun: its order is 1, not 2"),
    ],
)
def test_an_inconsistent_tableau_is_refused(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(get_tableau("heun"), **change)


def test_numbers_of_rooted_trees() -> None:
    """Hairer, Nørsett and Wanner (1993), Table II.2.1."""
    assert [len(trees(nodes)) for nodes in range(1, 9)] == [1, 1, 2, 4, 9, 20, 48, 115]


def test_order_of_a_scheme_with_six_stages() -> None:
    """Kutta's scheme of order 5 as corrected by Nyström (1925)."""
    rows = ["1/3", "4/25 6/25", "1/4 -3 15/4", "2/27 10/9 -50/81 8/81", "2/25 12/25 2/15 8/75 0"]
    a = ((), *(tuple(float(Fraction(number)) for number in row.split()) for row in rows))
    b = tuple(float(Fraction(number)) for number in ["23/192", "0", "125/192", "0", "-27/64", "125/192"])
    assert order_of_tableau(a, b) == 5


@pytest.mark.usefixtures("registry")
def test_a_registered_tableau_has_its_names() -> None:
    registered = register_tableau(dataclasses.replace(get_tableau("heun"), name="my-heun", aliases=("mine",)))
    assert get_tableau("my-heun") is get_tableau("mine") is registered
    assert {"my-heun", "mine"} <= set(tableau_names())
    with pytest.raises(ValueError, match="the scheme name 'my-heun' is already in use"):
        register_tableau(registered)
