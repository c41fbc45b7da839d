"""Sub-layers as vector fields.

    pre-norm     f(x) = dropout(function(LN(x))),   output(x) = x + f(x)      ODE Transformer (2022) Eqs. 3 and 5
    post-norm    f(x) = dropout(function(x)),       output(x) = LN(x + f(x))

A Macaron layer consists of the same sub-layers, two of which take half a step (Macaron Net, Eqs. 17-19).
"""

from collections.abc import Callable, Sequence

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


class SubLayer(nn.Module):
    """Function with layer normalisation, dropout and residual; a call returns f(y), which the residual adds to y.

    :param function: maps [.., dim] to [.., dim]
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
        self.layer, self.name, self.copy = 0, kind.value, 0  # its place in a stack, from 0 on: see ``Layer``
        self.layer_norm = nn.LayerNorm(dim) if normalized else nn.Identity()
        self.function = function
        self.dropout = Dropout(dropout, shared_noise)
        self.normalize_before = normalize_before
        self.step_fraction = step_fraction

    def forward(self, y: Tensor, context: Context, stage: int = 0) -> Tensor:
        x = self.layer_norm(y) if self.normalize_before else y
        inputs = {} if self.kind is SubLayerKind.FEED_FORWARD else context.inputs(self, stage)
        increment = self.dropout(self.function(x, **inputs))
        return increment if self.step_fraction == 1.0 else self.step_fraction * increment

    def output(self, y: Tensor, context: Context, stage: int = 0) -> Tensor:
        """Return the output of the sub-layer with its residual, [.., dim]."""
        y = y + self(y, context, stage)
        return y if self.normalize_before else self.layer_norm(y)
