"""Sub-layers as vector fields, and the layer that is made of them.

The papers step the merged layer, "SAN + FFN", without writing its F; here it is what the residual layer adds to y.

    sub-layer   f(x) = dropout(function(LN(x)))             ODE Transformer (2022) Eqs. 3 and 5: G(LN(y_t), θ_t)
    layer       F(y) = a + FFN(LN(y + a)),  a = SAN(LN(y))  so that y + F(y) is the pre-norm layer
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import Tensor, nn

from ode_transformer.nn.dropout import Dropout
from ode_transformer.numerics import VectorField, sequential_increment


class FeedForward(nn.Module):
    """W_2 · dropout(activation(W_1 x + b_1)) + b_2, [.., dim] -> [.., dim]."""

    def __init__(self, dim: int, inner_dim: int, activation: Callable[[Tensor], Tensor], dropout: float = 0.0) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, inner_dim)
        self.fc2 = nn.Linear(inner_dim, dim)
        for linear in (self.fc1, self.fc2):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)
        self.activation = activation
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.dropout(self.activation(self.fc1(x))))


class SubLayer(nn.Module):
    """dropout(function(LN(x))): what a pre-norm sub-layer adds to its input.

    :param function: maps [.., dim] to [.., dim]; further arguments of a call go to it
    :param dim: width
    :param dropout: of the increment
    """

    def __init__(self, function: nn.Module, dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.layer_norm = nn.LayerNorm(dim)
        self.function = function
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, **inputs: Any) -> Tensor:
        return self.dropout(self.function(self.layer_norm(x), **inputs))


class Layer(nn.ModuleDict):
    """Named sub-layers that act in turn. Called with y it returns F(y), what they add to y together."""

    def fields(self, inputs: Mapping[str, Mapping[str, Any]]) -> list[VectorField]:
        """The sub-layers as vector fields of y alone.

        :param inputs: what a sub-layer needs beside y, by its name; sub-layers that need nothing may be absent
        """
        return [partial(sublayer, **inputs.get(name, {})) for name, sublayer in self.items()]

    def forward(self, y: Tensor, inputs: Mapping[str, Mapping[str, Any]]) -> Tensor:
        """F(y), [B, T, C] -> [B, T, C]; ``inputs`` as in :meth:`fields`."""
        return sequential_increment(self.fields(inputs), y)
