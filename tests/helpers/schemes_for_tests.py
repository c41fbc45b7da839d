"""Steps of depth schemes over plain functions of y."""

from collections.abc import Callable, Iterable
from typing import Any

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
