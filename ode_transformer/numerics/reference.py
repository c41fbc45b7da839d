"""Reference solutions of y' = f(y): the step size is halved until the solution no longer changes.

The result y_N of N steps of the classical RK4 is compared with y_{N/2}. As long as each halving of the step size at
least halves the change,

    ‖y_N − y(T)‖ ≤ ‖y_N − y_{N/2}‖ (1/2 + 1/4 + …) = ‖y_N − y_{N/2}‖

This bound assumes only order 1. Richardson's estimate, ‖y_N − y_{N/2}‖ / (2⁴ − 1), assumes order 4, which RK4 does not
reach on a field with kinks such as those of ReLU.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ode_transformer.numerics.runge_kutta import VectorField, runge_kutta_steps
from ode_transformer.numerics.tableau import get_tableau

# Distance between an approximation and a better one.
Distance = Callable[[Tensor, Tensor], float]

_FIRST_STEPS = 4
LEAST_STEPS = 4 * _FIRST_STEPS  # two halvings, from which a bound can follow


@dataclass(frozen=True)
class Reference:
    """Solution with a bound of its error.

    :param change: distance to the result of half as many steps
    :param previous_change: the same distance for half as many steps
    """

    y: Tensor
    steps: int
    change: float
    previous_change: float

    @property
    def bound(self) -> float:
        """Upper bound of the error of y; infinite if the last halving of the step size did not halve the change."""
        return self.change if self.change <= self.previous_change / 2 < math.inf else math.inf


def largest_difference(approximate: Tensor, better: Tensor) -> float:
    """Return max |approximate − better|."""
    return float((approximate - better).abs().max())


def solve_to_tolerance(
    field: VectorField,
    y0: Tensor,
    tolerance: float,
    duration: float = 1.0,
    distance: Distance = largest_difference,
    max_steps: int = 4096,
) -> Reference:
    """Compute y(T), T = ``duration``, with an error of at most ``tolerance``, or by ``max_steps`` steps.

    The property ``bound`` of the result tells whether the tolerance was reached. At least 8 steps are taken,
    and from ``LEAST_STEPS`` on the bound is finite if the last halving of the step at least halved the change.

    :param y0: y(0), any shape; in float64 unless float32 can reach the tolerance
    :param distance: distance between two solutions, in the unit of the tolerance
    """
    rk4 = get_tableau("rk4")
    steps, previous_change = _FIRST_STEPS, math.inf
    with torch.no_grad():
        y = runge_kutta_steps(field, y0, rk4, steps, duration=duration)
        while True:
            steps, coarse = 2 * steps, y
            y = runge_kutta_steps(field, y0, rk4, steps, duration=duration)
            change = distance(coarse, y)
            reference = Reference(y, steps, change, previous_change)
            if reference.bound <= tolerance or 2 * steps > max_steps:
                return reference
            previous_change = change
