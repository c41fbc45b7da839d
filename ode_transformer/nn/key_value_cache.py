"""Key-value cache of attention for step-by-step decoding.

Keys and values are stored position by position, [T, B, .., H, C/H], in buffers with spare room: a new position is
written in place, and when beam search replaces the rows, each buffer is copied once, into a buffer that is now free.
That happens just before the buffer is read again: the processor then still has the copy at hand.
Axes: B batch, H heads, T positions, C channels.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

_ROOM = 32  # positions by which a buffer grows


class SpareBuffer:
    """A free buffer that caches pass on from one to the next."""

    buffer: Tensor | None = None


class KeyValueCache:
    """Keys and values of earlier positions, for one attention at one evaluation; without gradients."""

    def __init__(self) -> None:
        self.buffers: list[Tensor] = []  # keys and values, flat; only the beginning is in use
        self.shape: tuple[int, ...] = (0,)  # T, B, .., H, C/H
        self._positions: list[Tensor] = []  # the whole buffers, [room, B, .., H, C/H] each
        self._new_rows: tuple[Tensor, SpareBuffer] | None = None  # of the last reordering, not yet carried out

    def __len__(self) -> int:
        """Return the number of positions."""
        return self.shape[0]

    def read(self) -> tuple[Tensor, Tensor]:
        """Return keys and values, [B, .., H, T, C/H] each."""
        self._replace_rows()
        key, value = (x[: len(self)].movedim(0, -2) for x in self._positions)
        return key, value

    def read_heads(self) -> tuple[Tensor, Tensor]:
        """Return the keys [B·H, C/H, T] and values [B·H, T, C/H] of heads, for products of matrices."""
        key, value = (x[: len(self)].flatten(1, -2) for x in self._positions)  # [T, B·H, C/H]
        return key.permute(1, 2, 0), value.transpose(0, 1)

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Add positions, [B, .., H, T, C/H], and return all of them as :meth:`read` does."""
        self.write(*(x.detach().movedim(-2, 0) for x in (key, value)))
        return self.read()

    def write(self, *added: Tensor) -> None:
        """Add positions of the keys and of the values, [T, B, .., H, C/H] each."""
        self._replace_rows()
        old_length = len(self)
        length = old_length + len(added[0])
        self.shape = (length, *added[0].shape[1:])
        if not self._positions or length > len(self._positions[0]):
            room = (-(-length // _ROOM) * _ROOM, *self.shape[1:])
            self.buffers = [x.new_empty(torch.Size(room).numel()) for x in added]
            earlier, self._positions = self._positions, [buffer.view(room) for buffer in self.buffers]
            for old, new in zip(earlier, self._positions, strict=False):
                new[:old_length] = old[:old_length]
        for x, y in zip(self._positions, added, strict=True):
            x[old_length:length] = y

    def reorder(self, rows: Tensor, spare: SpareBuffer) -> None:
        """Replace the rows of the batch by the rows with the numbers ``rows``, when the cache is next used.

        :param spare: a free buffer, which then is another one
        """
        self._replace_rows()
        self._new_rows = rows, spare

    def _replace_rows(self) -> None:
        if self._new_rows is None:
            return
        rows, spare = self._new_rows
        self._new_rows = None
        length, row, free = len(self), self.shape[2:], spare.buffer
        self.shape = (length, len(rows), *row)
        position = len(rows) * torch.Size(row).numel()  # numbers of one position
        for number, buffer in enumerate(self.buffers):
            if free is None or free.numel() < max(length * position, buffer.numel()) or free.dtype != buffer.dtype:
                free = buffer.new_empty(max(length * position, buffer.numel()))
            room = free.numel() // position
            selected = free[: room * position].view(room, len(rows), *row)
            torch.index_select(self._positions[number][:length], 1, rows, out=selected[:length])
            self.buffers[number], self._positions[number], free = free, selected, buffer
        spare.buffer = free


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

    def read_heads(self) -> tuple[Tensor, Tensor]:
        """Return the keys [B/k·H, C/H, S] and values [B/k·H, S, C/H] of heads, for products of matrices."""
        key, value = (x.flatten(0, -3) for x in self.read())
        return key.transpose(1, 2), value

    def store(self, key: Tensor, value: Tensor, rows: int) -> None:
        """Keep keys and values, [B/k, H, S, C/H] each, of ``rows`` rows B."""
        # Contiguous, because a product of matrices would copy them otherwise, at each step.
        self.key_and_value = key.detach().contiguous(), value.detach().contiguous()
        self.run = rows // len(key)

    def select(self, entries: Tensor | None, run: int) -> None:
        """Keep the entries with the numbers ``entries``, all if None, for ``run`` rows in turn each."""
        key, value = self.read()
        self.key_and_value = select_entries(key, entries), select_entries(value, entries)
        self.run = run


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
    """Replace the rows of the batch in several caches by the rows with the numbers ``rows``.

    Caches of positions pass on a spare buffer from one to the next. Rows are compared once for all encoder outputs.
    """
    spare = SpareBuffer()
    runs: dict[tuple[int, int], tuple[Tensor | None, int]] = {}
    for cache in caches:
        if isinstance(cache, KeyValueCache):
            cache.reorder(rows, spare)
            continue
        kind = cache.run, len(cache.read()[0])
        if kind not in runs:
            runs[kind] = equal_runs(rows // cache.run, len(cache.read()[0]))
        cache.select(*runs[kind])
