"""Key-value cache of attention for step-by-step decoding.

Keys and values are stored position by position, [T, B, .., H, C/H], in buffers with spare room: a new position is
written in place, and when beam search replaces the rows, each buffer is copied once, into a buffer that is now free.
Axes: B batch, H heads, T positions, C channels.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

_ROOM = 32  # positions by which a buffer grows


class KeyValueCache:
    """Keys and values of earlier positions, for one attention at one evaluation; without gradients."""

    def __init__(self) -> None:
        self.buffers: list[Tensor] = []  # keys and values, flat; only the beginning is in use
        self.shape: tuple[int, ...] = (0,)  # T, B, .., H, C/H
        self._joined: tuple[Tensor, Tensor] | None = None

    def __len__(self) -> int:
        """Return the number of positions."""
        return self.shape[0]

    def joined(self, *projections: nn.Linear) -> tuple[Tensor, Tensor]:
        """Return weight and bias of several projections as one; the first call joins them.

        They stay here and not with the projections, whose parameters may change between two searches.
        """
        if self._joined is None:
            weight = torch.cat([projection.weight.detach() for projection in projections])
            self._joined = weight, torch.cat([projection.bias.detach() for projection in projections])
        return self._joined

    def read(self) -> tuple[Tensor, Tensor]:
        """Return keys and values, [B, .., H, T, C/H] each."""
        key, value = (_part_in_use(buffer, self.shape).movedim(0, -2) for buffer in self.buffers)
        return key, value

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Add positions, [B, .., H, T, C/H], and return all of them as :meth:`read` does."""
        added = [x.detach().movedim(-2, 0) for x in (key, value)]  # [T, B, .., H, C/H]
        old_length, new_length = len(self), len(self) + len(added[0])
        if not self.buffers:
            self.buffers = [x.new_empty(0) for x in added]
        shape = (new_length, *added[0].shape[1:])
        room = (-(-new_length // _ROOM) * _ROOM, *shape[1:])
        for number, (buffer, x) in enumerate(zip(self.buffers, added, strict=True)):
            if buffer.numel() < torch.Size(shape).numel():
                self.buffers[number] = x.new_empty(torch.Size(room).numel())
                _part_in_use(self.buffers[number], self.shape).copy_(_part_in_use(buffer, self.shape))
            _part_in_use(self.buffers[number], shape)[old_length:].copy_(x)
        self.shape = shape
        return self.read()

    def reorder(self, rows: Tensor, spare: Tensor | None = None) -> Tensor | None:
        """Replace the rows of the batch by the rows with the numbers ``rows``.

        :param spare: a free buffer of another cache
        :returns: a buffer that is free now
        """
        shape = (self.shape[0], len(rows), *self.shape[2:])
        needed = torch.Size(shape).numel()
        for number, buffer in enumerate(self.buffers):
            if spare is None or spare.numel() < max(needed, buffer.numel()) or spare.dtype != buffer.dtype:
                spare = torch.empty_like(buffer) if needed <= buffer.numel() else buffer.new_empty(needed)
            torch.index_select(_part_in_use(buffer, self.shape), 1, rows, out=_part_in_use(spare, shape))
            self.buffers[number], spare = spare, buffer
        self.shape = shape
        return spare


class EncoderCache:
    """Keys and values of an encoder output, computed once and kept once for all rows that share them."""

    def __init__(self) -> None:
        self.key_and_value: tuple[Tensor, Tensor] | None = None
        self.run = 1

    def __bool__(self) -> bool:
        """Tell whether there are keys and values."""
        return self.key_and_value is not None

    def read(self) -> tuple[Tensor, Tensor]:
        """Return keys and values, [B/k, H, S, C/H] each."""
        assert self.key_and_value is not None
        return self.key_and_value

    def store(self, key: Tensor, value: Tensor, rows: int) -> None:
        """Keep keys and values, [B/k, H, S, C/H] each, of ``rows`` rows B."""
        self.key_and_value, self.run = (key.detach(), value.detach()), rows // len(key)

    def reorder(self, rows: Tensor, spare: Tensor | None = None) -> Tensor | None:
        """Replace the rows of the batch by the rows with the numbers ``rows``.

        :returns: ``spare``
        """
        key, value = self.read()
        entries, self.run = equal_runs(rows // self.run, len(key))
        self.key_and_value = select_entries(key, entries), select_entries(value, entries)
        return spare


Cache = KeyValueCache | EncoderCache


def equal_runs(rows: Tensor, count: int) -> tuple[Tensor | None, int]:
    """Divide rows, each the number of one of ``count`` entries, into runs of equal numbers, all of one length k.

    :returns: the entry of each run, None for all entries in their order, and k; ``rows`` and 1 if the lengths differ
    """
    entries, lengths = torch.unique_consecutive(rows, return_counts=True)
    k = int(lengths[0])
    if not bool((lengths == k).all()):
        return rows, 1
    unchanged = len(entries) == count and torch.equal(entries, torch.arange(count, device=entries.device))
    return (None if unchanged else entries), k


def select_entries(x: Tensor, entries: Tensor | None, axis: int = 0) -> Tensor:
    """Select entries along an axis; ``x`` itself if ``entries`` is None."""
    return x if entries is None else x.index_select(axis, entries)


def reorder_all(caches: Iterable[Cache], rows: Tensor) -> None:
    """Reorder several caches, which pass on a spare buffer from one to the next."""
    spare: Tensor | None = None
    for cache in caches:
        spare = cache.reorder(rows, spare)


def _part_in_use(buffer: Tensor, shape: tuple[int, ...]) -> Tensor:
    return buffer[: torch.Size(shape).numel()].view(shape)
