"""Context of a forward pass: all that layers read beside the representation, and caches by sub-layer and stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

from torch import Tensor

from ode_transformer.nn.attention_scores import AttentionMask
from ode_transformer.nn.key_value_cache import Cache, EncoderCache, KeyValueCache
from ode_transformer.nn.value_residual import ValueResidual


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

    def change_values(self, layer: int) -> Callable[[Tensor], Tensor] | None:
        """Return what maps the values of a layer's self-attention; None without value residual."""
        if self.value_residual is None:
            return None
        return partial(self.value_residual.sum, layer, *self.first_values) if layer else self._keep_first

    def _keep_first(self, values: Tensor) -> Tensor:
        if not self.first_values:  # neither by later evaluations nor when a backward pass computes it again
            self.first_values.append(values)
        return values
