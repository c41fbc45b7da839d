"""A layer as vector fields: its sub-layers, merged or one by one, with the context that they read.

    merged layer   F(y) = a + FFN(LN(y + a)),   a = SAN(LN(y))     so that y + F(y) is the pre-norm layer

The papers step the merged layer, "SAN + FFN", without writing its F; here it is what the residual layer adds to y.
Axes: B batch, H heads, T query positions, S key positions, C channels.
"""

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

from torch import Tensor, nn

from ode_transformer.nn.attention_scores import AttentionMask
from ode_transformer.nn.key_value_cache import Cache, EncoderCache, KeyValueCache
from ode_transformer.nn.sublayers import SELF_ATTENTIONS, SubLayer, SubLayerKind
from ode_transformer.numerics import Block, composed, sequential_increment

# Function F of one layer. The papers' equations step what the layer adds to y; the released code steps the whole layer
# with its residuals, and adds y once more.
FUNCTIONS = ("increment", "layer-output")

# Which sub-layers are stepped (ODE Transformer 2022, Figure 4): merged, each alone, or one of them beside plain others.
SCOPES = ("san+ffn", "san/ffn", "san", "ffn")
_STEPPED_ALONE = {"san": SELF_ATTENTIONS, "ffn": (SubLayerKind.FEED_FORWARD,)}


@dataclass(frozen=True)
class LayerCaches:
    """Key-value caches of one layer, created when they are first used.

    :param build: builds a cache of self-attention
    """

    caches: MutableMapping[str, Cache]
    layer: int
    build: Callable[[], KeyValueCache] = KeyValueCache

    def cache(self, sublayer: str, number: int, build: Callable[[], Cache]) -> Cache:
        """Return cache ``number`` of the sub-layer called ``sublayer``."""
        name = f"{self.layer}.{sublayer}.{number}"
        if name not in self.caches:
            self.caches[name] = build()
        return self.caches[name]


@dataclass(frozen=True)
class AttentionContext:
    """Inputs of the attention of a layer beside the representation, the same at every evaluation.

    :param encoder_output: [B, S, C_encoder] for cross-attention; None for self-attention
    :param caches: caches of the layer when decoding step by step
    :param report_weights: called with the attention weights [B, H, T, S] of every evaluation
    :param change_values: maps the values [B, H, T, C/H] of every evaluation to those that are attended to
    """

    mask: AttentionMask
    encoder_output: Tensor | None = None
    caches: LayerCaches | None = None
    report_weights: Callable[[Tensor], None] | None = None
    change_values: Callable[[Tensor], Tensor] | None = None

    def arguments(self, sublayer: str, evaluation: int, copy: int) -> dict[str, Any]:
        """Return the arguments with which ``copy`` of the sub-layer makes its evaluation number ``evaluation``."""
        cache: Cache | None = None
        if self.caches is not None:
            # The keys of self-attention differ between evaluations, those of the encoder output only between copies.
            if self.encoder_output is None:
                cache = self.caches.cache(sublayer, evaluation, self.caches.build)
            else:
                cache = self.caches.cache(sublayer, copy, EncoderCache)
        arguments = {
            "mask": self.mask,
            "encoder_output": self.encoder_output,
            "cache": cache,
            "report_weights": self.report_weights,
        }
        return arguments if self.change_values is None else arguments | {"change_values": self.change_values}


# Context of one layer: the inputs of its attentions. A feed-forward network needs none.
LayerContext = Mapping[SubLayerKind, AttentionContext]

# Names of sub-layers that form one block, and whether a scheme steps the block.
Group = tuple[tuple[str, ...], bool]


def groups(scope: str, kinds: Mapping[str, SubLayerKind]) -> list[Group]:
    """Divide the sub-layers of a layer into blocks that act in turn.

    :param kinds: kind of each sub-layer by name, in the order in which they act
    """
    if scope == "san+ffn":
        return [(tuple(kinds), True)]
    return [((name,), scope == "san/ffn" or kind in _STEPPED_ALONE[scope]) for name, kind in kinds.items()]


class Layer(nn.ModuleDict):
    """Named sub-layers that act in turn; a list in place of a sub-layer holds copies with separate parameters.

    Evaluation e uses copy e modulo the number of copies, so that every stage of a scheme has its own parameters
    (ODE Transformer 2022, footnote 4).
    """

    @property
    def kinds(self) -> dict[str, SubLayerKind]:
        """Kind of each sub-layer by name, in the order in which they act."""
        return {name: copies_of(sublayer)[0].kind for name, sublayer in self.items()}

    def blocks(
        self,
        context: LayerContext | None = None,
        function: str = "increment",
        grouping: Sequence[Group] | None = None,
    ) -> list[Block]:
        """Return the layer in the form that a depth scheme steps; a scheme's step needs new blocks.

        :param context: inputs of the attentions
        :param grouping: from :func:`groups`; by default all sub-layers form one block
        """
        evaluations = {name: _Evaluations(name, self[name], context or {}) for name in self}
        blocks = []
        for names, stepped in grouping or [(tuple(self), True)]:
            members = [evaluations[name] for name in names]
            outputs = partial(composed, [member.output for member in members])
            if stepped and function == "increment":
                increments = [member.increment for member in members]
                blocks.append(Block(partial(sequential_increment, increments), stepped, outputs))
            else:
                blocks.append(Block(outputs, stepped))
        return blocks


def copies_of(sublayer: nn.Module) -> list[SubLayer]:
    """Return the copies of a sub-layer, which are one if all stages share its parameters."""
    copies: list[Any] = list(sublayer) if isinstance(sublayer, nn.ModuleList) else [sublayer]
    return copies


class _Evaluations:
    """Evaluations of one sub-layer during one step, counted so that each finds its parameters and its cache."""

    def __init__(self, name: str, sublayer: nn.Module, context: LayerContext) -> None:
        self.name = name
        self.copies = copies_of(sublayer)
        self.context = context.get(self.copies[0].kind)
        self.evaluation = count()

    def increment(self, x: Tensor) -> Tensor:
        sublayer, arguments = self._next()
        return sublayer(x, **arguments)

    def output(self, x: Tensor) -> Tensor:
        sublayer, arguments = self._next()
        return sublayer.output(x, **arguments)

    def _next(self) -> tuple[SubLayer, dict[str, Any]]:
        evaluation = next(self.evaluation)
        copy = evaluation % len(self.copies)
        if self.context is None:
            return self.copies[copy], {}
        return self.copies[copy], self.context.arguments(self.name, evaluation, copy)
