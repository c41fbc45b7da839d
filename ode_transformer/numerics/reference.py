"""Reference solutions of y' = f(y): the step size is halved until the solution no longer changes.

The result y_N of N steps of the classical RK4 is compared with y_{N/2}. As long as each halving of the step size at
least halves the change,

    ‖y_N − y(T)‖ ≤ ‖y_N − y_{N/2}‖ (1/2 + 1/4 + …) = ‖y_N − y_{N/2}‖

This bound assumes only order 1. Richardson's estimate, ‖y_N − y_{N/2}‖ / (2⁴ − 1), assumes order 4, which RK4 does not
reach on a field with kinks such as those of ReLU.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ode_transformer.numerics.runge_kutta import VectorField, runge_kutta_steps
from ode_transformer.numerics.tableau import get_tableau

_FIRST_STEPS = 4


class Reference(NamedTuple):
    """Solution with a bound of its error.

    :param bound: upper bound of the error of y; infinite if the last halving of the step size did not halve the change
    """

    y: Tensor
    steps: int
    bound: float


def largest_difference(approximate: Tensor, better: Tensor) -> float:
    """Return max |approximate − better|."""
    return float((approximate - better).abs().max())


def solve_to_tolerance(
    field: VectorField,
    y0: Tensor,
    tolerance: float,
    duration: float = 1.0,
    distance: Callable[[Tensor, Tensor], float] = largest_difference,
    max_steps: int = 4096,
) -> Reference:
    """Compute y(T), T = ``duration``, with an error of at most ``tolerance``, or by ``max_steps`` steps.

    The bound of the result tells whether the tolerance was reached; at least 16 steps are needed for a finite one.

    :param y0: y(0), any shape; in float64 unless float32 can reach the tolerance
    :param distance: distance between an approximation and a better one, in the unit of the tolerance
    """
    rk4 = get_tableau("rk4")
    steps, previous_change = _FIRST_STEPS, math.inf
    with torch.no_grad():
        y = runge_kutta_steps(field, y0, rk4, steps, duration=duration)
        while True:
            steps, coarse = 2 * steps, y
            y = runge_kutta_steps(field, y0, rk4, steps, duration=duration)
            change = distance(coarse, y)
            bound = change if change <= previous_change / 2 < math.inf else math.inf
            if bound <= tolerance or 2 * steps > max_steps:
                return Reference(y, steps, bound)
            previous_change = change
