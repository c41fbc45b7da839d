"""Multi-head attention over PyTorch's scaled_dot_product_attention.

    softmax(Q Kᵀ / √(C/H) + bias) V    for each head; the bias holds relative positions and what is blocked

Axes: B batch, H heads, T query positions, S key positions, C channels. B may be several axes.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from ode_transformer.nn.dropout import Dropout
from ode_transformer.nn.key_value_cache import KeyValueCache
from ode_transformer.nn.relative_position import RelativePositionKeys, RelativePositionValues, relative_index


@dataclass(frozen=True)
class AttentionPattern:
    """Who may look at whom, the same for all layers of a pass and therefore made once.

    :param blocked: True where a query must not see a key, broadcasts to [B, H, T, S]; None if nothing is blocked
    :param index: flat index of the relative positions (see ``relative_index``); None without them
    """

    blocked: Tensor | None = None
    index: Tensor | None = None


def attention_pattern(
    queries: int,
    keys: int,
    device: torch.device,
    padding_mask: Tensor | None = None,
    causal: bool = False,
    clip: int = 0,
) -> AttentionPattern:
    """The pattern for ``queries`` positions that are the last of ``keys``.

    :param padding_mask: [.., keys], True at padding; its first axes broadcast to B
    :param causal: no position sees a later one
    :param clip: clip distance of the relative positions, 0 for none
    """
    blocked = None if padding_mask is None else padding_mask[..., None, None, :]
    if causal and queries > 1:
        future = torch.ones(queries, keys, dtype=torch.bool, device=device).triu(keys - queries + 1)
        blocked = future if blocked is None else blocked | future
    return AttentionPattern(blocked, relative_index(queries, keys, clip, device) if clip else None)


class MultiheadAttention(nn.Module):
    """Self-attention, with relative positions on request, or attention over an encoder's output.

    :param dim: width C of the queries and of the result
    :param heads: H, divides ``dim``
    :param dropout: of the attention weights
    :param memory_dim: width of the encoder's output; ``dim`` by default
    :param max_relative_positions: clip distance k of the relative positions, 0 for none
    :param relative_values: relative positions on the values too; the attention weights are then made explicitly
    :param shared_noise: axes of the weights [B, H, T, S] along which dropout shares its noise; likewise
    :raises ValueError: if the heads do not divide the width
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        dropout: float = 0.0,
        memory_dim: int | None = None,
        max_relative_positions: int = 0,
        relative_values: bool = False,
        shared_noise: Sequence[int] = (),
    ) -> None:
        super().__init__()
        if heads <= 0 or dim % heads:
            raise ValueError(f"{heads} attention heads do not divide the width {dim}")
        self.heads = heads
        self.dropout = Dropout(dropout, shared_noise)
        self.scale = (dim // heads) ** -0.5
        self.q_proj = nn.Linear(dim, dim)
        self.k_proj = nn.Linear(memory_dim or dim, dim)
        self.v_proj = nn.Linear(memory_dim or dim, dim)
        self.out_proj = nn.Linear(dim, dim)
        for projection in (self.q_proj, self.k_proj, self.v_proj):
            nn.init.xavier_uniform_(projection.weight, gain=2**-0.5)  # as if the three were one matrix
        nn.init.xavier_uniform_(self.out_proj.weight)
        nn.init.zeros_(self.out_proj.bias)
        clip, head_dim = max_relative_positions, dim // heads
        self.relative_keys = RelativePositionKeys(clip, head_dim) if clip else None
        self.relative_values = RelativePositionValues(clip, head_dim) if relative_values else None

    def forward(
        self,
        x: Tensor,
        pattern: AttentionPattern,
        memory: Tensor | None = None,
        cache: KeyValueCache | None = None,
        weights: MutableSequence[Tensor] | None = None,
    ) -> Tensor:
        """What the positions of ``x`` read from themselves, or from ``memory`` where it is given.

        :param x: [B, T, C]
        :param memory: the encoder's output [B, S, C_memory]
        :param cache: read and updated in place: over ``x``, the keys and values of earlier positions, to which those
            of ``x`` are appended; over ``memory``, its keys and values, which do not change
        :param weights: if given, the attention weights [B, H, T, S] are appended to it
        :returns: [B, T, C]
        """
        query = self._split(self.q_proj(x))
        key, value = self._keys_and_values(x, memory, cache)
        bias = self._bias(query, pattern)
        drop = self.dropout.active
        if weights is None and self.relative_values is None and not (drop and self.dropout.shared):
            out = self._fused(query, key, value, bias, drop)
        else:
            probabilities = self._probabilities(query, key, bias)
            if weights is not None:
                weights.append(probabilities)
            probabilities = self.dropout(probabilities)
            out = torch.matmul(probabilities, value)
            if self.relative_values is not None:
                out = out + self.relative_values(probabilities, pattern.index)
        return self.out_proj(out.transpose(-3, -2).flatten(-2))

    def _split(self, x: Tensor) -> Tensor:
        """[B, T, C] -> [B, H, T, C/H]"""
        return x.unflatten(-1, (self.heads, -1)).transpose(-3, -2)

    def _fused(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, drop: float) -> Tensor:
        """PyTorch's own attention, whose fast implementations take one batch axis: B is folded into it."""
        batch = query.shape[:-3]
        if len(batch) > 1:
            query, key, value = (x.flatten(0, -4) for x in (query, key, value))
            if bias is not None and bias.dim() > 3:
                bias = bias.expand(*batch, *bias.shape[-3:]).flatten(0, -4)
        out = scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=drop, scale=self.scale)
        return out.unflatten(0, batch)

    def _keys_and_values(self, x: Tensor, memory: Tensor | None, cache: KeyValueCache | None) -> tuple[Tensor, Tensor]:
        if memory is not None and cache:
            return cache.read()
        source = x if memory is None else memory
        key, value = self._split(self.k_proj(source)), self._split(self.v_proj(source))
        return (key, value) if cache is None else cache.append(key, value)

    def _bias(self, query: Tensor, pattern: AttentionPattern) -> Tensor | None:
        """What is added to the scores, [B, H, T, S], or a mask that is True where attention is allowed."""
        if self.relative_keys is None or pattern.index is None:
            return None if pattern.blocked is None else ~pattern.blocked
        bias = self.relative_keys(query, pattern.index, self.scale)
        if pattern.blocked is None:
            return bias
        # The lowest number, not -inf: a row in which everything is blocked must not become NaN.
        return bias.masked_fill(pattern.blocked, torch.finfo(bias.dtype).min)

    def _probabilities(self, query: Tensor, key: Tensor, bias: Tensor | None) -> Tensor:
        scores = torch.matmul(query * self.scale, key.transpose(-1, -2))
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        if bias is not None and bias.dtype == torch.bool:
            scores = scores.masked_fill(~bias, torch.finfo(scores.dtype).min)
        elif bias is not None:
            scores = scores + bias
        return scores.softmax(dim=-1).to(query.dtype)
