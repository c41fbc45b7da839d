"""Every tableau is consistent and reaches the order that it states."""

import dataclasses
import math

import pytest
import torch

from ode_transformer.numerics import TABLEAUS, ButcherTableau, get_tableau, runge_kutta_step, scheme_names


def field(y: torch.Tensor) -> torch.Tensor:
    """y' = y² cos(s), s' = 1, so that y = 1 / (1/y0 − sin s): nonlinear and not autonomous in y alone."""
    value, clock = y
    return torch.stack([value**2 * torch.cos(clock), torch.ones_like(clock)])


def error_after(tableau: ButcherTableau, steps: int) -> float:
    y = torch.tensor([0.5, 0.0], dtype=torch.float64)
    for _ in range(steps):
        y = runge_kutta_step(field, y, tableau, step_size=1.0 / steps)
    return abs(y[0].item() - 1 / (2 - math.sin(1.0)))


@pytest.mark.parametrize("tableau", TABLEAUS, ids=lambda t: t.name)
def test_measured_order_is_the_stated_one(tableau: ButcherTableau) -> None:
    """Order 0 is a fact too: the rule does not converge."""
    coarse, fine = error_after(tableau, 64), error_after(tableau, 128)
    assert math.log2(coarse / fine) == pytest.approx(tableau.order, abs=0.1)


@pytest.mark.parametrize(("name", "times"), [("repeat", 2), ("repeat4", 4)])
def test_repeat_is_the_residual_layer_again_and_again(name: str, times: int) -> None:
    y = torch.randn(3, dtype=torch.float64)
    expected = y
    for _ in range(times):
        expected = expected + torch.sin(expected)
    torch.testing.assert_close(runge_kutta_step(torch.sin, y, get_tableau(name)), expected)


def test_the_names_that_others_rely_on() -> None:
    expected = {
        "euler",
        "midpoint",
        "heun",
        "rk2",
        "ralston",
        "kutta3",
        "ssprk3",
        "rk4",
        "rk38",
        "rk3-released",
    }
    assert expected <= set(scheme_names())
    assert get_tableau("rk2") is get_tableau("heun")


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(ValueError, match="unknown scheme 'rk5'; known are euler, midpoint"):
        get_tableau("rk5")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"a": ((), (0.5,)), "c": (0.0, 1.0)}, "row 2 of a sums to 0.5"),
        ({"b": (0.5, 0.6)}, "weights b sum to 1.1"),
        ({"a": ((), (0.5, 0.5))}, "row 2 of a must have 1 entries, not 2"),
        ({"b": (1.0,)}, "one entry for each stage"),
    ],
)
def test_an_inconsistent_tableau_is_refused(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(get_tableau("heun"), **change)
