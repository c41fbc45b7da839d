"""Key-value cache of attention for step-by-step decoding.

Keys and values are stored position by position, [T, B, .., H, C/H], in buffers with spare room: a new position is
written in place, and when beam search replaces the rows, each buffer is copied once, into a buffer that is now free.
Axes: B batch, H heads, T positions, C channels.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

_ROOM = 32  # positions by which a buffer grows


class KeyValueCache:
    """Keys and values of earlier positions, for one attention at one evaluation; without gradients."""

    def __init__(self) -> None:
        self.buffers: list[Tensor] = []  # keys and values, flat; only the beginning is in use
        self.shape: tuple[int, ...] = (0,)  # T, B, .., H, C/H

    def __len__(self) -> int:
        """Return the number of positions."""
        return self.shape[0]

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


def reorder_all(caches: Iterable[KeyValueCache], rows: Tensor) -> None:
    """Reorder several caches, which pass on a spare buffer from one to the next."""
    spare: Tensor | None = None
    for cache in caches:
        spare = cache.reorder(rows, spare)


def _part_in_use(buffer: Tensor, shape: tuple[int, ...]) -> Tensor:
    return buffer[: torch.Size(shape).numel()].view(shape)
