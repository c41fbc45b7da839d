"""Sub-layers as vector fields.

    pre-norm     f(x) = dropout(function(LN(x))),   output(x) = x + f(x)      ODE Transformer (2022) Eqs. 3 and 5
    post-norm    f(x) = dropout(function(x)),       output(x) = LN(x + f(x))

A Macaron layer consists of the same sub-layers, two of which take half a step (Macaron Net, Eqs. 17-19).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

from torch import Tensor, nn

from ode_transformer.nn.context import Context, SubLayerKind
from ode_transformer.nn.dropout import Dropout
from ode_transformer.nn.linear import linear


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


class SubLayer(nn.Module, ABC):
    """Function with layer normalisation, dropout and residual; a call returns f(y), which the residual adds to y.

    :param function: maps [.., dim] to [.., dim]
    :param dropout: of the increment
    :param normalize_before: pre-norm; otherwise the sum with the residual is normalised
    :param step_fraction: fraction of a step that the sub-layer takes, a factor of the increment
    :param normalized: False for no layer normalisation at all
    :param shared_noise: axes along which dropout shares its noise
    """

    kind: ClassVar[SubLayerKind]

    def __init__(
        self,
        function: nn.Module,
        dim: int,
        dropout: float = 0.0,
        normalize_before: bool = True,
        step_fraction: float = 1.0,
        normalized: bool = True,
        shared_noise: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.layer, self.name, self.copy = 0, self.kind.value, 0  # its place, from 0 on, which its ``Layer`` sets
        self.layer_norm = nn.LayerNorm(dim) if normalized else nn.Identity()
        self.function = function
        self.dropout = Dropout(dropout, shared_noise)
        self.normalize_before = normalize_before
        self.step_fraction = step_fraction

    @abstractmethod
    def evaluate(self, x: Tensor, context: Context, stage: int) -> Tensor:
        """Return the function of x, [.., dim] -> [.., dim], with what it reads of the context."""

    def forward(self, y: Tensor, context: Context, stage: int = 0) -> Tensor:
        x = self.layer_norm(y) if self.normalize_before else y
        increment = self.dropout(self.evaluate(x, context, stage))
        return increment if self.step_fraction == 1.0 else self.step_fraction * increment

    def output(self, y: Tensor, context: Context, stage: int = 0) -> Tensor:
        """Return the output of the sub-layer with its residual, [.., dim]."""
        y = y + self(y, context, stage)
        return y if self.normalize_before else self.layer_norm(y)


class FeedForwardSubLayer(SubLayer):
    """Feed-forward network."""

    kind = SubLayerKind.FEED_FORWARD

    def evaluate(self, x: Tensor, context: Context, stage: int) -> Tensor:
        return self.function(x)


class SelfAttention(SubLayer):
    """Self-attention; each stage of a search has a cache of its own."""

    kind = SubLayerKind.SELF_ATTENTION

    def evaluate(self, x: Tensor, context: Context, stage: int) -> Tensor:
        return self.function(
            x,
            context.masks[self.kind],
            cache=context.self_cache(f"{self.layer}.{self.name}.{stage}"),
            weights=context.weights_of(self.layer, self.kind),
            change_values=context.values and partial(context.values.step, self.layer),
        )


class CrossAttention(SubLayer):
    """Attention to the encoder output, whose keys and values are the same for all stages of a copy."""

    kind = SubLayerKind.CROSS_ATTENTION

    def evaluate(self, x: Tensor, context: Context, stage: int) -> Tensor:
        return self.function(
            x,
            context.masks[self.kind],
            source=context.source,
            cache=context.source_cache(f"{self.layer}.{self.name}.{self.copy}"),
            weights=context.weights_of(self.layer, self.kind),
        )


class TargetAttention(SelfAttention):
    """Self-attention along the target axis of a grid."""

    kind = SubLayerKind.TARGET_ATTENTION


class SourceAttention(SubLayer):
    """Self-attention along the source axis of a grid; the new line of a search attends within itself."""

    kind = SubLayerKind.SOURCE_ATTENTION

    def evaluate(self, x: Tensor, context: Context, stage: int) -> Tensor:
        weights = context.weights_of(self.layer, self.kind)
        return self.function(x, context.masks[self.kind], weights=weights)
