"""Decoding steps: attention of a single query, masks of which a step computes only what has changed, and fixed steps.

A fixed step has equal shapes and reads and writes the same memory, as CUDA graphs need. Its cache has room for more
positions than there are: a step writes where its position says and attends to the whole room, and a mask hides the
positions to come. Caches are reordered when a step writes them, so that it contains this, too.

Axes: B batch, H heads, T target positions, S keys, C channels, k rows that share an encoder output.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ode_transformer.nn.attention_scores import (
    MASKED,
    PLAIN_ATTENTION,
    AttentionChoice,
    AttentionMask,
    attention_mask,
    softmax,
)
from ode_transformer.nn.key_value_cache import Cache, EncoderCache, KeyValueCache
from ode_transformer.nn.relative_position import relative_offsets

if TYPE_CHECKING:
    from ode_transformer.nn.attention import MultiheadAttention

# Keys among fairseq's incremental states. ROWS_STAY says whether the next reordering replaces each row by one of the
# same sentence. A search that has it has no padding in its hypotheses. To find out either would wait for a GPU.
FIXED_STEP = "fixed_step"
ROWS_STAY = "rows_stay"


def attend_from_last_position(
    attention: MultiheadAttention,
    x: Tensor,
    mask: AttentionMask,
    cache: Cache,
    source: Tensor | None = None,
    weights: list[Tensor] | None = None,
    change_values: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Compute an attention for a single query by few operators, whose calls take longer than what they compute.

    Heads are one more batch axis of products of matrices.

    :param x: [B, .., 1, C]
    :param mask: of a step, whose bias is [B · .. · H, 1, S], fewer rows where rows share keys
    :param cache: self-attention appends keys and values; those of the encoder output are computed once
    :param source: [B/k, S, encoder_dim]
    :param weights: list to which the attention weights [B, .., H, 1, S] are appended
    :param change_values: maps the values [B, .., H, 1, C/H] of ``x``
    :returns: [B, .., 1, C]
    """
    *batch, _, dim = x.shape
    heads, factor = attention.heads, 1.0
    bias = None if mask.bias is None else mask.bias.to(x.dtype)
    if isinstance(cache, KeyValueCache):
        projected = attention.in_proj(x).view(1, *batch, 3, heads, dim // heads).movedim(-3, 1)  # [1, 3, B, .., H, C/H]
        query, added = projected[:, 0].reshape(-1, 1, dim // heads), projected[:, 1:]  # [B · .. · H, 1, C/H]
        if change_values is not None:
            values = change_values(projected[0, 2].unsqueeze(-2)).squeeze(-2)
            added = torch.stack([projected[0, 1], values])[None]
        cache.write(added.detach())
        if attention.relative_keys is not None:
            assert mask.offsets is not None
            positions, factor = attention.relative_keys(query, mask.offsets), attention.scale
            bias = positions if bias is None else positions + bias
    else:
        rows = len(x)
        if not cache.is_filled:
            assert source is not None
            key, value = attention.split_heads(attention.kv_proj(source), 2)
            cache.store(key, value, rows)
        query = attention.q_proj(x).view(rows // cache.run, cache.run, heads, -1)  # [B/k, k, H, C/H]
        query = query.transpose(1, 2).reshape(-1, cache.run, dim // heads)  # [B/k · H, k, C/H]
    key, value = cache.read_heads()
    if bias is None:
        scores = torch.bmm(query * attention.scale, key)  # [.. · H, 1 or k, S]
    else:
        scores = torch.baddbmm(bias, query, key, beta=factor, alpha=attention.scale)
    probabilities = softmax(scores)

    def by_row(y: Tensor) -> Tensor:
        """[.. · H, 1 or k, S or C/H] -> [B, .., H, 1, S or C/H]"""
        if isinstance(cache, EncoderCache):
            y = y.view(len(x) // cache.run, heads, cache.run, -1).transpose(1, 2)  # [B/k, k, H, S or C/H]
        return y.reshape(*batch, heads, 1, y.size(-1))

    def by_head(y: Tensor) -> Tensor:
        """[B, .., H, 1, S] -> [.. · H, 1 or k, S]"""
        if isinstance(cache, EncoderCache):
            y = y.view(len(x) // cache.run, cache.run, heads, -1).transpose(1, 2)  # [B/k, H, k, S]
        return y.reshape(probabilities.shape)

    if weights is not None:
        weights.append(by_row(probabilities))
    if attention.dropout.active:  # of --retain-dropout
        probabilities = by_head(attention.dropout(by_row(probabilities)))
    out = torch.bmm(probabilities, value)
    if attention.relative_values is not None:
        assert mask.offsets is not None
        out = out + attention.relative_values(probabilities, mask.offsets)
    return attention.out_proj(by_row(out).reshape(x.shape))


class StepMasks:
    """Masks of one query, the last target position, through the steps of a search.

    :param heads: H
    """

    def __init__(self, heads: int) -> None:
        self._heads = heads
        self._offsets: Tensor | None = None  # of the last of many positions, [1, T]
        self._source: tuple[Tensor, AttentionMask] | None = None  # padding, and its mask

    def over_target(
        self, keys: int, device: torch.device, padding: Tensor | None = None, choice: AttentionChoice = PLAIN_ATTENTION
    ) -> AttentionMask:
        """Return the mask of self-attention.

        :param keys: T, the number of target positions so far
        :param padding: of them, [B, .., T], True at padding; None for no padding
        """
        bias, clip = None if padding is None else self._by_head(padding), choice.max_relative_positions
        if not clip:
            return AttentionMask(bias)
        if self._offsets is None or self._offsets.size(1) < keys:
            room = 2 * keys + 62
            self._offsets = relative_offsets(torch.tensor([room - 1], device=device), room, clip)
        return AttentionMask(bias, self._offsets[:, -keys:])

    def over_source(self, padding: Tensor | None) -> AttentionMask:
        """Return the mask of attention to the encoder output, the last one if ``padding`` is the same tensor.

        :param padding: [B, S], True at padding; None for no padding
        """
        if padding is None:
            return AttentionMask()
        if self._source is None or self._source[0] is not padding:
            self._source = padding, AttentionMask(self._by_head(padding))
        return self._source[1]

    def _by_head(self, padding: Tensor) -> Tensor:
        """[B, .., S] -> [B · .. · H, 1, S]"""
        bias = attention_mask(1, padding.size(-1), padding.device, padding).bias
        assert bias is not None
        return bias.expand(*padding.shape[:-1], self._heads, -1, -1).flatten(0, -3)


class FixedStep:
    """Inputs of a step, which stay at one place in memory.

    :param rows: R, the number of hypotheses
    :param capacity: positions for which there is room
    :ivar room: positions that the step attends to
    :ivar is_odd: True for every second step, which reads the caches that the step before has written
    :ivar tokens: the last one of each row, [R, 1]
    :ivar position: its number, from 0 on, [1]
    :ivar rows: the row of the last step that each row continues, [R]
    """

    def __init__(self, rows: int, capacity: int, device: torch.device) -> None:
        self.capacity = self.room = capacity
        self.is_odd = False
        self.tokens = torch.zeros(rows, 1, dtype=torch.long, device=device)
        self.position = torch.zeros(1, dtype=torch.long, device=device)
        self.rows = torch.arange(rows, device=device)
        self._same_rows = self.rows.clone()

    def begin(self, token: int) -> None:
        """Prepare the first step of a search, whose hypotheses all begin with ``token``."""
        self.tokens.fill_(token)
        self.position.zero_()
        self.rows.copy_(self._same_rows)

    def advance(self, tokens: Tensor, rows: Tensor) -> None:
        """Prepare the next step."""
        self.tokens.copy_(tokens)
        self.rows.copy_(rows)
        self.position.add_(1)

    def mask(self, choice: AttentionChoice) -> AttentionMask:
        """Return the mask of self-attention, a variant of which is ``choice``."""
        later = torch.arange(self.room, device=self.position.device) > self.position  # [T]
        bias = torch.zeros((), device=later.device).masked_fill(later[None, None], MASKED)
        clip = choice.max_relative_positions
        return AttentionMask(bias, relative_offsets(self.position, self.room, clip) if clip else None)


class FixedCache(KeyValueCache):
    """Cache in two memories that stay: each step reads one, and writes the reordered rows into the other.

    :param step: inputs of the step that writes it
    """

    reorders_itself = True

    def __init__(self, step: FixedStep) -> None:
        super().__init__()
        self._step = step

    def write(self, added: Tensor) -> None:
        """Reorder the rows, and set one position of the keys and values, [1, 2, B, .., H, C/H]."""
        if not self.length:  # zeros, since 0 times a value has to be 0
            self._memories = added.new_zeros(2, self._step.capacity, *added.shape[1:])
        self.length = self._step.room
        earlier, self.positions = self._memories if self._step.is_odd else (self._memories[1], self._memories[0])
        used = self.positions[: self.length]
        torch.index_select(earlier[: self.length], 2, self._step.rows, out=used)
        used.index_copy_(0, self._step.position, added)

    def clear(self) -> None:
        """Set all keys and values to zero: attention multiplies those that it masks by 0, and 0 · NaN is NaN."""
        self._memories.zero_()
