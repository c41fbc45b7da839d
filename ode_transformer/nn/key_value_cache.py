"""Key-value caches of attention for step-by-step decoding.

Keys and values of all self-attentions stand position by position in one tensor with spare room, [room, N, 2, B, .., H,
C/H]: a new position is written in place, and when beam search replaces the rows, one operator copies all caches into a
second tensor, with which the first then changes places.
Axes: N caches, B batch, H heads, T positions, C channels.
"""

import torch
from torch import Tensor

_ROOM = 32  # positions by which a cache grows


class KeyValueCache:
    """Keys and values of earlier positions, for one attention at one evaluation; without gradients.

    :ivar positions: keys and values [room, 2, B, .., H, C/H], of which the first T are in use
    """

    reorders_itself = False  # when it is written

    def __init__(self) -> None:
        self.positions = torch.empty(0)
        self.length = 0

    def read_heads(self) -> tuple[Tensor, Tensor]:
        """Return the keys [B·H, C/H, T] and values [B·H, T, C/H] of heads, for products of matrices."""
        positions = self.positions[: self.length]
        positions = positions.view(len(positions), 2, -1, positions.size(-1))  # [T, 2, B·H, C/H]
        return positions[:, 0].permute(1, 2, 0), positions[:, 1].transpose(0, 1)

    def write(self, added: Tensor) -> None:
        """Add positions of the keys and values, [T, 2, B, .., H, C/H]."""
        length = self.length + len(added)
        if length > len(self.positions):
            room = -(-length // _ROOM) * _ROOM
            earlier, self.positions = self.positions[: self.length], added.new_empty(room, *added.shape[1:])
            if self.length:
                self.positions[: self.length] = earlier
        self.positions[self.length : length] = added
        self.length = length

    def attend(self, projected: Tensor, heads: int, relative: Tensor | None) -> Tensor | None:
        """Write a position and attend to all, if the cache computes this itself; else return None.

        :param projected: queries, keys and values, [B, .., 1, 3C]
        :param relative: vectors of relative positions, added to the keys
        :returns: [B, .., 1, C]
        """
        return None

    def clear(self) -> None:
        """Forget all positions."""
        self.length = 0


class EncoderCache:
    """Keys and values of an encoder output, computed once and kept once for all rows that share them."""

    def __init__(self) -> None:
        self.key = self.value = torch.empty(0)  # [B/k, H, S, C/H] each
        self.run = 1  # k
        self.is_filled = False  # by the present encoder output

    def read_heads(self) -> tuple[Tensor, Tensor]:
        """Return the keys [B/k·H, C/H, S] and values [B/k·H, S, C/H] of heads, for products of matrices."""
        key, value = (x.view(-1, *x.shape[-2:]) for x in (self.key, self.value))
        return key.transpose(1, 2), value

    def store(self, key: Tensor, value: Tensor, rows: int) -> None:
        """Keep keys and values, [B/k, H, S, C/H] each, of ``rows`` rows B; in the place of earlier ones."""
        if self.key.numel():
            self.key.copy_(key)
            self.value.copy_(value)
        else:
            # Contiguous, because a product of matrices would copy them otherwise, at each step.
            self.key, self.value = key.detach().contiguous(), value.detach().contiguous()
        self.run, self.is_filled = rows // len(key), True

    def clear(self) -> None:
        """Let the next step compute keys and values of another encoder output of the same shape."""
        self.is_filled = False

    def select(self, entries: Tensor | None, run: int) -> None:
        """Keep the entries with the numbers ``entries``, all if None, for ``run`` rows in turn each."""
        self.key, self.value = select_entries(self.key, entries), select_entries(self.value, entries)
        self.run = run


Cache = KeyValueCache | EncoderCache


class Caches(dict[str, Cache]):
    """All caches of a decoder by name."""

    def __init__(self) -> None:
        super().__init__()
        self._used = self._free = torch.empty(0)  # flat buffers, which change places
        self._joined = torch.empty(0)  # positions of all key-value caches, [room, N, 2, B, .., H, C/H], in the used one
        self._parts: list[Tensor] = []  # those of each cache

    def forget(self, kind: type[Cache]) -> None:
        """Forget what the caches of a kind hold of a batch, in place, before another one of the same shape."""
        for cache in self.values():
            if isinstance(cache, kind):
                cache.clear()

    def reorder(self, rows: Tensor, of_same_entry: bool = False) -> None:
        """Replace the rows of the batch by the rows with the numbers ``rows``.

        :param of_same_entry: each row is replaced by one that shares its encoder output
        """
        growing = [cache for cache in self.values() if isinstance(cache, KeyValueCache) and not cache.reorders_itself]
        if growing:
            self._reorder_positions(growing, rows)
        runs: dict[tuple[int, int], tuple[Tensor | None, int]] = {}  # rows are compared once for all encoder outputs
        for cache in self.values() if not of_same_entry else ():
            if isinstance(cache, EncoderCache):
                kind = cache.run, len(cache.key)
                if kind not in runs:
                    runs[kind] = equal_runs(rows // cache.run, len(cache.key))
                cache.select(*runs[kind])

    def _reorder_positions(self, caches: list[KeyValueCache], rows: Tensor) -> None:
        length, (_, _, _, *row) = caches[0].length, caches[0].positions.shape
        shape = (len(caches), 2, len(rows), *row)  # of one position
        numbers = torch.Size(shape).numel()
        if self._free.numel() <= length * numbers or self._free.dtype != caches[0].positions.dtype:
            self._free = caches[0].positions.new_empty((length // _ROOM + 1) * _ROOM * numbers)
        room = self._free.numel() // numbers
        target = self._free[: room * numbers].view(room, *shape)
        if len(caches) == len(self._parts) and all(c.positions is x for c, x in zip(caches, self._parts, strict=True)):
            torch.index_select(self._joined[:length], 3, rows, out=target[:length])
        else:
            for number, cache in enumerate(caches):
                target[:length, number] = cache.positions[:length].index_select(2, rows)
        self._used, self._free, self._joined, self._parts = self._free, self._used, target, list(target.unbind(1))
        for cache, moved in zip(caches, self._parts, strict=True):
            cache.positions = moved


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
