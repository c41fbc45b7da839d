"""The cache against concatenation and indexing."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ode_transformer.nn import Caches, KeyValueCache

HEADS, DIM = 2, 3


def append(cache: KeyValueCache, *new: torch.Tensor) -> None:
    """Add keys and values, [B, .., H, T, C/H] each."""
    cache.write(torch.stack(new).movedim(-2, 0))


def read(cache: KeyValueCache) -> tuple[torch.Tensor, ...]:
    return cache.positions[: cache.length].movedim(0, -2).unbind()


@settings(deadline=None, max_examples=30)
@given(lines=st.sampled_from([(), (4,)]), data=st.data())
def test_any_search_keeps_what_plain_tensors_keep(lines: tuple[int, ...], data: st.DataObject) -> None:
    """Positions are added by one or many, rows kept, copied, swapped, dropped, also past the room of a buffer."""
    caches, expected = Caches(), [[], []]
    growing = [caches.setdefault(name, KeyValueCache()) for name in "ab"]
    rows = data.draw(st.integers(1, 4))
    generator = torch.Generator().manual_seed(0)
    for _ in range(data.draw(st.integers(1, 6))):
        length = data.draw(st.sampled_from([1, 1, 2, 40]))
        for cache, kept in zip(growing, expected, strict=True):
            new = [torch.randn(rows, *lines, HEADS, length, DIM, generator=generator) for _ in range(2)]
            kept[:] = [torch.cat(pair, dim=-2) for pair in zip(kept, new, strict=True)] if kept else new
            append(cache, *new)
            for got, wanted in zip(read(cache), kept, strict=True):
                assert torch.equal(got, wanted)
        order = torch.tensor(data.draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=6)))
        caches.reorder(order)
        rows = len(order)
        for cache, kept in zip(growing, expected, strict=True):
            kept[:] = [x.index_select(0, order) for x in kept]
            for got, wanted in zip(read(cache), kept, strict=True):
                assert torch.equal(got, wanted)


def test_a_position_is_written_in_place() -> None:
    cache = KeyValueCache()
    new = [torch.randn(2, HEADS, 1, DIM) for _ in range(2)]
    append(cache, *new)
    first = cache.positions.data_ptr()
    for _ in range(31):
        append(cache, *new)
        assert cache.positions.data_ptr() == first
    assert cache.length == 32
    append(cache, *new)
    assert cache.positions.data_ptr() != first
