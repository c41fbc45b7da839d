"""Solutions of y' = f(y) that count as exact: steps are halved until that changes nothing more.

y_N, which N steps of the classical RK4 reach, is compared with y_{N/2}. While each halving of the steps at least halves
the change,

    ‖y_N − y(T)‖ ≤ ‖y_N − y_{N/2}‖ (1/2 + 1/4 + …) = ‖y_N − y_{N/2}‖

This asks for order 1 alone, where Richardson's estimate, ‖y_N − y_{N/2}‖ / (2⁴ − 1), asks for order 4: a field with
kinks, as ReLU makes them, does not keep RK4's order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ode_transformer.numerics.runge_kutta import VectorField, runge_kutta_steps
from ode_transformer.numerics.tableau import get_tableau

# How far an approximation is from a better one.
Distance = Callable[[Tensor, Tensor], float]

_FIRST_STEPS = 4


@dataclass(frozen=True)
class Reference:
    """A solution and how well it is known.

    :param y: y(T)
    :param steps: how many steps led to it
    :param change: its distance to what half as many steps reach
    :param previous: that distance one halving of the steps before
    """

    y: Tensor
    steps: int
    change: float
    previous: float

    @property
    def bound(self) -> float:
        """How far y is from the solution at most; infinite where the last halving did not halve the change."""
        return self.change if self.change <= self.previous / 2 < math.inf else math.inf


def largest_difference(approximate: Tensor, better: Tensor) -> float:
    """max |approximate − better|."""
    return float((approximate - better).abs().max())


def solve_to_tolerance(
    field: VectorField,
    y0: Tensor,
    tolerance: float,
    duration: float = 1.0,
    distance: Distance = largest_difference,
    max_steps: int = 4096,
) -> Reference:
    """y(T), T = ``duration``, at a distance of at most ``tolerance``; at ``max_steps`` it ends all the same.

    Whether the tolerance was reached, ``bound`` of the result tells. At least 16 steps are taken.

    :param field: the vector field f
    :param y0: y(0), any shape; float64, unless the tolerance is one that float32 can reach
    :param distance: between two solutions, in the unit of the tolerance
    """
    rk4 = get_tableau("rk4")
    steps, previous = _FIRST_STEPS, math.inf
    with torch.no_grad():
        y = runge_kutta_steps(field, y0, rk4, steps, duration=duration)
        while True:
            steps, coarse = 2 * steps, y
            y = runge_kutta_steps(field, y0, rk4, steps, duration=duration)
            change = distance(coarse, y)
            reference = Reference(y, steps, change, previous)
            if reference.bound <= tolerance or 2 * steps > max_steps:
                return reference
            previous = change
