"""Context of a forward pass: all that layers read beside the representation, and caches by sub-layer and stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ode_transformer.nn.attention_scores import AttentionMask
from ode_transformer.nn.key_value_cache import Cache, EncoderCache, KeyValueCache
from ode_transformer.nn.value_residual import ValueResidual

if TYPE_CHECKING:
    from ode_transformer.nn.sublayers import SubLayer


class SubLayerKind(Enum):
    """Kind of a sub-layer; a layer may have several of one kind, such as the two halves of a splitting."""

    SELF_ATTENTION = "self-attention"
    CROSS_ATTENTION = "cross-attention"
    TARGET_ATTENTION = "self-attention along the target axis of a grid"
    SOURCE_ATTENTION = "self-attention along the source axis of a grid"
    FEED_FORWARD = "feed-forward network"


SELF_ATTENTIONS = (SubLayerKind.SELF_ATTENTION, SubLayerKind.TARGET_ATTENTION, SubLayerKind.SOURCE_ATTENTION)


@dataclass(frozen=True)
class Context:
    """Inputs of all attentions of a forward pass through a stack.

    :param masks: by the kind of attention
    :param source: encoder output, [B, S, encoder_dim]
    :param padding: True at padding of the representation, [B, T], or [B, S, T] of a grid; for measurements alone
    :param caches: by name, during a search
    :param build_cache: builds a cache of self-attention
    :param weights: lists for the attention weights [B, H, T, S] of every evaluation, by layer and kind
    :param value_residual: sums the values of the first layer and those of a later one
    :param first_values: holds those of the first layer's first evaluation, [B, H, T, C/H], once they are computed
    """

    masks: Mapping[SubLayerKind, AttentionMask]
    source: Tensor | None = None
    padding: Tensor | None = None
    caches: MutableMapping[str, Cache] | None = None
    build_cache: Callable[[], KeyValueCache] = KeyValueCache
    weights: Mapping[tuple[int, SubLayerKind], list[Tensor]] = field(default_factory=dict)
    value_residual: ValueResidual | None = None
    first_values: list[Tensor] = field(default_factory=list)

    def inputs(self, sublayer: SubLayer, stage: int) -> dict[str, Any]:
        """Return the inputs of an attention beside the representation, for the evaluation of a stage."""
        return {
            "mask": self.masks[sublayer.kind],
            "source": self.source if sublayer.kind is SubLayerKind.CROSS_ATTENTION else None,
            "cache": None if self.caches is None else self._cache(self.caches, sublayer, stage),
            "weights": self.weights.get((sublayer.layer, sublayer.kind)),
            "change_values": self._change_values(self.value_residual, sublayer),
        }

    def _cache(self, caches: MutableMapping[str, Cache], sublayer: SubLayer, stage: int) -> Cache | None:
        """Return the cache of an evaluation, created when it is first used."""
        if sublayer.kind is SubLayerKind.SOURCE_ATTENTION:  # the new line of a grid attends within itself
            return None
        over_source = sublayer.kind is SubLayerKind.CROSS_ATTENTION
        # The keys of self-attention differ between stages, those of the encoder output only between copies.
        name = f"{sublayer.layer}.{sublayer.name}.{sublayer.copy if over_source else stage}"
        if name not in caches:
            caches[name] = EncoderCache() if over_source else self.build_cache()
        return caches[name]

    def _change_values(self, residual: ValueResidual | None, sublayer: SubLayer) -> Callable[[Tensor], Tensor] | None:
        if residual is None or sublayer.kind is not SubLayerKind.SELF_ATTENTION:
            return None
        return partial(residual.sum, sublayer.layer, *self.first_values) if sublayer.layer else self._keep_first

    def _keep_first(self, values: Tensor) -> Tensor:
        if not self.first_values:  # neither by later evaluations nor when a backward pass computes it again
            self.first_values.append(values)
        return values
