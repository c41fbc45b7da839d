"""What attention keeps while decoding goes step by step.

Keys and values lie position by position, [T, B, .., H, C/H], in buffers with room to spare: a new position is written
in place, and when beam search replaces the rows, each buffer is copied once, into one that another has just left.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

_ROOM = 32  # positions by which a buffer grows


class KeyValueCache:
    """Keys and values of the positions that one attention, at one evaluation, has already seen. No gradient passes."""

    def __init__(self) -> None:
        self.buffers: list[Tensor] = []  # of keys and of values, flat; what is used is at their beginning
        self.shape: tuple[int, ...] = (0,)  # T, B, .., H, C/H

    def __len__(self) -> int:
        """How many positions it holds."""
        return self.shape[0]

    def read(self) -> tuple[Tensor, Tensor]:
        """Keys and values, [B, .., H, T, C/H] each."""
        key, value = (_used(buffer, self.shape).movedim(0, -2) for buffer in self.buffers)
        return key, value

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Adds positions, [B, .., H, T, C/H], and returns those of :meth:`read`."""
        new = [x.detach().movedim(-2, 0) for x in (key, value)]
        before, after = len(self), len(self) + len(new[0])
        if not self.buffers:
            self.buffers = [x.new_empty(0) for x in new]
        shape = (after, *new[0].shape[1:])
        room = (-(-after // _ROOM) * _ROOM, *shape[1:])
        for number, (buffer, x) in enumerate(zip(self.buffers, new, strict=True)):
            if buffer.numel() < torch.Size(shape).numel():
                self.buffers[number] = x.new_empty(torch.Size(room).numel())
                _used(self.buffers[number], self.shape).copy_(_used(buffer, self.shape))
            _used(self.buffers[number], shape)[before:].copy_(x)
        self.shape = shape
        return self.read()

    def reorder(self, rows: Tensor, spare: Tensor | None = None) -> Tensor | None:
        """Makes ``rows``, numbers of rows along the axis B, its rows.

        :param spare: a buffer that is free, from another cache
        :returns: one that is free now
        """
        shape = (self.shape[0], len(rows), *self.shape[2:])
        needed = torch.Size(shape).numel()
        for number, buffer in enumerate(self.buffers):
            if spare is None or spare.numel() < max(needed, buffer.numel()) or spare.dtype != buffer.dtype:
                spare = torch.empty_like(buffer) if needed <= buffer.numel() else buffer.new_empty(needed)
            torch.index_select(_used(buffer, self.shape), 1, rows, out=_used(spare, shape))
            self.buffers[number], spare = spare, buffer
        self.shape = shape
        return spare


def reorder_all(caches: Iterable[KeyValueCache], rows: Tensor) -> None:
    """Reorders several caches, which lend one another the room that they need for it."""
    spare: Tensor | None = None
    for cache in caches:
        spare = cache.reorder(rows, spare)


def _used(buffer: Tensor, shape: tuple[int, ...]) -> Tensor:
    return buffer[: torch.Size(shape).numel()].view(shape)
