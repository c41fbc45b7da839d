"""Steps of depth schemes over plain functions of y."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ode_transformer.numerics import ButcherTableau, RungeKutta, Scheme

Field = Callable[[Tensor], Tensor]


class Weigh(nn.Module):
    """A function as a set of coefficients."""

    def __init__(self, weigh: Callable[..., Any]) -> None:
        super().__init__()
        self.weigh = weigh

    def forward(self, increments: list[Tensor]) -> Any:
        return self.weigh(increments)


def runge_kutta_step(
    f: Field, y: Tensor, tableau: ButcherTableau, weigh: Callable[..., Any] | None = None, step_size: float = 1.0
) -> Tensor:
    coefficients = [] if weigh is None else [Weigh(weigh)]
    return RungeKutta(tableau, coefficients, step_size=step_size)(lambda z, _: f(z), y, None, 0)[0]


def integrate(scheme: Scheme, fields: Iterable[Field], y: Tensor) -> Tensor:
    """y after one block for each field."""
    return states(scheme, fields, y)[0]


def states(scheme: Scheme, fields: Iterable[Field], y: Tensor) -> tuple[Tensor, Any]:
    """The same with the scheme's state."""
    state = scheme.start(y)
    for block, f in enumerate(fields):
        y, state = scheme(lambda z, _, f=f: f(z), y, state, block)
    return y, state


def error_after(scheme: Scheme, steps: int) -> float:
    """The error at t = 1 on y' = y² cos s, s' = 1, whose solution is y = 1 / (1 / y_0 − sin s)."""

    def field(y: Tensor) -> Tensor:
        value, clock = y
        return torch.stack([value**2 * torch.cos(clock), torch.ones_like(clock)]) / steps

    y = integrate(scheme, [field] * steps, torch.tensor([0.5, 0.0], dtype=torch.float64))
    return abs(y[0].item() - 1 / (2 - math.sin(1.0)))
