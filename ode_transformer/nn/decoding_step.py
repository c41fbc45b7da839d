"""Decoding steps: masks of which a step computes only what has changed, and steps at one place in memory.

A fixed step has equal shapes and reads and writes the same memory, as CUDA graphs need. Its cache has room for more
positions than there are: a step writes where its position says and attends to the whole room, and a mask hides the
positions to come. Caches are reordered when a step writes them, so that it contains this, too; or they stay, and the
step has a table of the rows in which each hypothesis finds its past.

Axes: B batch, H heads, T target positions, S keys, C channels, k rows that share an encoder output.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ode_transformer.nn.attention_scores import (
    MASKED,
    PLAIN_ATTENTION,
    AttentionChoice,
    AttentionMask,
    attention_mask,
)
from ode_transformer.nn.key_value_cache import KeyValueCache
from ode_transformer.nn.relative_position import relative_offsets


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
    :param attend: writes and reads memories by the table, see ``FixedCache.attend``; None to reorder caches
    :ivar room: positions that the step attends to
    :ivar is_odd: True for every second step, which reads the caches that the step before has written
    :ivar tokens: the last one of each row, [R, 1]
    :ivar position: its number, from 0 on, [1]
    :ivar rows: the row of the last step that each row continues, [R]
    :ivar table: the row in which each row finds its keys and values of earlier positions, [R, capacity]
    """

    def __init__(
        self,
        rows: int,
        capacity: int,
        device: torch.device,
        attend: Callable[[Tensor, Tensor, FixedStep, Tensor | None], Tensor] | None = None,
    ) -> None:
        self.capacity = self.room = capacity
        self.attend = attend
        self.is_odd = False
        self.tokens = torch.zeros(rows, 1, dtype=torch.long, device=device)
        self.position = torch.zeros(1, dtype=torch.long, device=device)
        self.rows = torch.arange(rows, device=device)
        self._same_rows = self.rows.clone()
        self.table = torch.zeros(rows, capacity, dtype=torch.long, device=device)

    def begin(self, token: int) -> None:
        """Prepare the first step of a search, whose hypotheses all begin with ``token``."""
        self.tokens.fill_(token)
        self.position.zero_()
        self.rows.copy_(self._same_rows)

    def advance(self, tokens: Tensor, rows: Tensor) -> None:
        """Prepare the next step."""
        self.tokens.copy_(tokens)
        self.rows.copy_(rows)
        if self.attend is not None:
            self.table.copy_(self.table.index_select(0, rows)).index_copy_(1, self.position, rows[:, None])
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

    def attend(self, projected: Tensor, heads: int, relative: Tensor | None) -> Tensor | None:
        """Write a position and attend, [B, 1, 3C] -> [B, 1, C]; None where the caches are reordered."""
        if self._step.attend is None or projected.dim() > 3:
            return None
        if not self.length:
            shape = self._step.capacity, 2, len(projected), heads, projected.size(-1) // (3 * heads)
            self._memories = projected.new_zeros(shape)
        self.length = self._step.room
        return self._step.attend(projected, self._memories, self._step, relative)

    def clear(self) -> None:
        """Set all keys and values to zero: attention multiplies those that it masks by 0, and 0 · NaN is NaN."""
        self._memories.zero_()
