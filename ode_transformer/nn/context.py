"""Context of a forward pass: all that layers read beside the representation, and caches by sub-layer and stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from enum import Enum

from torch import Tensor

from ode_transformer.nn.attention_scores import AttentionMask
from ode_transformer.nn.key_value_cache import Cache, EncoderCache, KeyValueCache
from ode_transformer.nn.value_residual import ResidualValues


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
    :param values: state of the value residual
    """

    masks: Mapping[SubLayerKind, AttentionMask]
    source: Tensor | None = None
    padding: Tensor | None = None
    caches: MutableMapping[str, Cache] | None = None
    build_cache: Callable[[], KeyValueCache] = KeyValueCache
    weights: Mapping[tuple[int, SubLayerKind], list[Tensor]] = field(default_factory=dict)
    values: ResidualValues | None = None

    def self_cache(self, name: str) -> Cache | None:
        """Return the cache of an evaluation of self-attention, created when it is first used; None in a full pass."""
        if self.caches is None:
            return None
        if name not in self.caches:
            self.caches[name] = self.build_cache()
        return self.caches[name]

    def source_cache(self, name: str) -> Cache | None:
        """Return the cache of the encoder output's keys and values; None in a full pass."""
        if self.caches is None:
            return None
        if name not in self.caches:
            self.caches[name] = EncoderCache()
        return self.caches[name]

    def weights_of(self, layer: int, kind: SubLayerKind) -> list[Tensor] | None:
        """Return the list to which the attentions of a layer append their weights; None if nobody asks for them."""
        return self.weights.get((layer, kind))
