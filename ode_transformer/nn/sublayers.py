"""Sub-layers as vector fields.

    pre-norm     f(x) = dropout(function(LN(x))),   output(x) = x + f(x)      ODE Transformer (2022) Eqs. 3 and 5
    post-norm    f(x) = dropout(function(x)),       output(x) = LN(x + f(x))

A Macaron layer consists of the same sub-layers, two of which take half a step (Macaron Net, Eqs. 17-19).
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from torch import Tensor, nn

from ode_transformer.nn.dropout import Dropout
from ode_transformer.nn.linear import linear


class SubLayerKind(Enum):
    """Kind of a sub-layer; a layer may have several of one kind, such as the two halves of a splitting."""

    SELF_ATTENTION = "self-attention"
    CROSS_ATTENTION = "cross-attention"
    TARGET_ATTENTION = "self-attention along the target axis of a grid"
    SOURCE_ATTENTION = "self-attention along the source axis of a grid"
    FEED_FORWARD = "feed-forward network"


SELF_ATTENTIONS = (SubLayerKind.SELF_ATTENTION, SubLayerKind.TARGET_ATTENTION, SubLayerKind.SOURCE_ATTENTION)


class FeedForward(nn.Module):
    """W_2 · dropout(activation(W_1 x + b_1)) + b_2, [.., input_dim] -> [.., dim].

    :param input_dim: ``dim`` by default
    :param normalized: activation(LN(W_1 x + b_1)) instead
    :param shared_noise: axes along which dropout shares its noise
    """

    def __init__(
        self,
        dim: int,
        inner_dim: int,
        activation: Callable[[Tensor], Tensor],
        dropout: float = 0.0,
        input_dim: int | None = None,
        normalized: bool = False,
        shared_noise: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.fc1 = linear(input_dim or dim, inner_dim)
        self.fc2 = linear(inner_dim, dim)
        self.layer_norm = nn.LayerNorm(inner_dim) if normalized else nn.Identity()
        self.activation = activation
        self.dropout = Dropout(dropout, shared_noise)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.dropout(self.activation(self.layer_norm(self.fc1(x))))  # [.., inner_dim]
        return self.fc2(hidden)  # [.., dim]


class SubLayer(nn.Module):
    """Function with layer normalisation, dropout and residual; a call returns f(x), which the residual adds to x.

    :param function: maps [.., dim] to [.., dim]; further arguments of a call go to it
    :param dropout: of the increment
    :param normalize_before: pre-norm; otherwise the sum with the residual is normalised
    :param step_fraction: fraction of a step that the sub-layer takes, a factor of the increment
    :param normalized: False for no layer normalisation at all
    :param shared_noise: axes along which dropout shares its noise
    """

    def __init__(
        self,
        kind: SubLayerKind,
        function: nn.Module,
        dim: int,
        dropout: float = 0.0,
        normalize_before: bool = True,
        step_fraction: float = 1.0,
        normalized: bool = True,
        shared_noise: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.kind = kind
        self.layer_norm = nn.LayerNorm(dim) if normalized else nn.Identity()
        self.function = function
        self.dropout = Dropout(dropout, shared_noise)
        self.normalize_before = normalize_before
        self.step_fraction = step_fraction

    def forward(self, x: Tensor, **arguments: Any) -> Tensor:
        increment = self.dropout(self.function(self.layer_norm(x) if self.normalize_before else x, **arguments))
        return increment if self.step_fraction == 1.0 else self.step_fraction * increment

    def output(self, x: Tensor, **arguments: Any) -> Tensor:
        """Return the output of the sub-layer with its residual, [.., dim]."""
        y = x + self(x, **arguments)
        return y if self.normalize_before else self.layer_norm(y)
