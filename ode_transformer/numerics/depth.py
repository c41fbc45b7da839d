"""The depth protocol: how a representation moves through a stack of layers.

A scheme takes a start y_0 and the layers' vector fields one by one:

    depth_state = scheme.start(y_0)
    depth_state = scheme.step(field, depth_state)      for each layer
    y_L         = scheme.finish(depth_state)

One-step schemes keep nothing but y; a scheme with memory keeps what it needs in its own subclass of
:class:`DepthState`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from ode_transformer.numerics.runge_kutta import VectorField, runge_kutta_step
from ode_transformer.numerics.tableau import ButcherTableau


@dataclass(frozen=True)
class DepthState:
    """What passes from layer to layer.

    :param y: what the next layer reads, [..., dim]
    :param depth: how many layers have been passed
    """

    y: Tensor
    depth: int = 0


class DepthScheme(nn.Module, ABC):
    """Base of all schemes; a subclass defines :meth:`step` and, if it remembers, :meth:`start`."""

    def start(self, y0: Tensor) -> DepthState:
        return DepthState(y0)

    @abstractmethod
    def step(self, field: VectorField, depth_state: DepthState) -> DepthState:
        """Passes one layer, whose vector field is ``field``."""

    def finish(self, depth_state: DepthState) -> Tensor:
        return depth_state.y

    def integrate(self, fields: Iterable[VectorField], y0: Tensor) -> Tensor:
        """Moves ``y0`` through all ``fields``."""
        depth_state = self.start(y0)
        for field in fields:
            depth_state = self.step(field, depth_state)
        return self.finish(depth_state)


class RungeKutta(DepthScheme):
    """One Runge–Kutta step of size 1 for each layer.

    :param tableau: the scheme
    :param coefficients: one set for each layer, or a single set that all layers share
    """

    def __init__(self, tableau: ButcherTableau, coefficients: Sequence[nn.Module]) -> None:
        super().__init__()
        self.tableau = tableau
        self.coefficients = nn.ModuleList(coefficients)

    def step(self, field: VectorField, depth_state: DepthState) -> DepthState:
        weigh = self.coefficients[depth_state.depth if len(self.coefficients) > 1 else 0]
        y = runge_kutta_step(field, depth_state.y, self.tableau, weigh)
        return DepthState(y, depth_state.depth + 1)
