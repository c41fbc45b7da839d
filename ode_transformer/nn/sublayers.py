"""Sub-layers as vector fields, and the layer that is made of them.

The papers step the merged layer, "SAN + FFN", without writing its F; here it is what the residual layer adds to y.

    sub-layer   f(x) = dropout(function(LN(x)))             ODE Transformer (2022) Eqs. 3 and 5: G(LN(y_t), θ_t)
                output(x) = x + f(x);  post-norm: f(x) = dropout(function(x)), output(x) = LN(x + f(x))
    layer       F(y) = a + FFN(LN(y + a)),  a = SAN(LN(y))  so that y + F(y) is the pre-norm layer

A Macaron layer is made of the same sub-layers, two of which take half a step (Macaron Net, Eqs. 17-19).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any

from torch import Tensor, nn

from ode_transformer.nn.dropout import Dropout
from ode_transformer.nn.linear import linear
from ode_transformer.numerics import Block, VectorField, composed, sequential_increment

# What a function is of one layer. The papers' equations step what the layer adds to y; the released code steps the
# whole layer with its residuals, and adds y once more.
FUNCTIONS = ("increment", "layer-output")

# Which sub-layers are stepped (ODE Transformer 2022, Figure 4): merged, each alone, or one of them beside plain others.
SCOPES = ("san+ffn", "san/ffn", "san", "ffn")
_STEPPED_ALONE = {"san": "self_attn", "ffn": "ffn"}

# What a sub-layer needs beside x at its e-th evaluation, made by copy c of its parameters: (name, e, c) -> arguments.
SubLayerInputs = Callable[[str, int, int], Mapping[str, Any]]


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
        return self.fc2(self.dropout(self.activation(self.layer_norm(self.fc1(x)))))


class SubLayer(nn.Module):
    """A function with its layer normalisation, dropout and residual; called with x it returns f(x), what it adds to x.

    :param function: maps [.., dim] to [.., dim]; further arguments of a call go to it
    :param dim: width
    :param dropout: of the increment
    :param normalize_before: pre-norm; otherwise the sum with the residual is normalised
    :param share: of a step that the sub-layer takes, a factor of the increment
    :param normalized: False for no layer normalisation at all
    :param shared_noise: axes along which dropout shares its noise
    """

    def __init__(
        self,
        function: nn.Module,
        dim: int,
        dropout: float = 0.0,
        normalize_before: bool = True,
        share: float = 1.0,
        normalized: bool = True,
        shared_noise: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.layer_norm = nn.LayerNorm(dim) if normalized else nn.Identity()
        self.function = function
        self.dropout = Dropout(dropout, shared_noise)
        self.normalize_before = normalize_before
        self.share = share

    def forward(self, x: Tensor, **inputs: Any) -> Tensor:
        increment = self.dropout(self.function(self.layer_norm(x) if self.normalize_before else x, **inputs))
        return increment if self.share == 1.0 else self.share * increment

    def output(self, x: Tensor, **inputs: Any) -> Tensor:
        """The sub-layer with its residual."""
        y = x + self(x, **inputs)
        return y if self.normalize_before else self.layer_norm(y)


def kind(name: str) -> str:
    """What a sub-layer is, ``self_attn``, ``encoder_attn`` or ``ffn``, also where it acts twice.

    As down and up in a splitting, or along the target and along the source of a grid.
    """
    for place in ("_down", "_up", "_target", "_source"):
        name = name.removesuffix(place)
    return name


# Names of sub-layers that form one block, and whether a scheme steps it.
Group = tuple[tuple[str, ...], bool]


def groups(scope: str, names: Sequence[str]) -> list[Group]:
    """How a scope divides the sub-layers ``names`` of a layer into blocks that act in turn."""
    if scope == "san+ffn":
        return [(tuple(names), True)]
    return [((name,), scope == "san/ffn" or kind(name) == _STEPPED_ALONE[scope]) for name in names]


class Layer(nn.ModuleDict):
    """Named sub-layers that act in turn; in place of a sub-layer, a list of copies with parameters of their own.

    Of copies, evaluation e reads number e modulo their count: every stage of a scheme has its own
    (ODE Transformer 2022, footnote 4).
    """

    def blocks(
        self, inputs: SubLayerInputs, function: str = "increment", grouping: Sequence[Group] | None = None
    ) -> list[Block]:
        """The layer as a depth scheme takes it; the evaluations of each sub-layer are counted from here on.

        :param function: one of ``FUNCTIONS``
        :param grouping: from :func:`groups`; by default all sub-layers are one block
        """
        sublayers = {name: _Evaluations(name, self[name], inputs) for name in self}
        blocks = []
        for names, stepped in grouping or groups("san+ffn", tuple(self)):
            members = [sublayers[name] for name in names]
            field: VectorField
            if stepped and function == "increment":
                field = partial(sequential_increment, [member.increment for member in members])
            else:
                field = partial(composed, [member.output for member in members])
            blocks.append(Block(field, stepped))
        return blocks


class _Evaluations:
    """Counts how often a sub-layer is evaluated, so that every evaluation has its parameters and its cache."""

    def __init__(self, name: str, sublayer: nn.Module, inputs: SubLayerInputs) -> None:
        self.name = name
        self.copies = list(sublayer) if isinstance(sublayer, nn.ModuleList) else [sublayer]
        self.inputs = inputs
        self.evaluation = count()

    def increment(self, x: Tensor) -> Tensor:
        sublayer, inputs = self._next()
        return sublayer(x, **inputs)

    def output(self, x: Tensor) -> Tensor:
        sublayer, inputs = self._next()
        return sublayer.output(x, **inputs)

    def _next(self) -> tuple[Any, Mapping[str, Any]]:
        evaluation = next(self.evaluation)
        copy = evaluation % len(self.copies)
        return self.copies[copy], self.inputs(self.name, evaluation, copy)
