"""Batches of many lengths are padded to few shapes, at a small cost."""

import numpy as np
import pytest
from graph_shapes import batch_shapes, draw_lengths, to_edges

from ode_transformer.speed.shapes import LENGTH_PADDING, LONGEST, length_edges, round_up_count, round_up_length


@pytest.mark.parametrize(("max_tokens", "epochs"), [(4096, 2), (16384, 5)])
def test_a_training_replays_95_batches_of_100_and_adds_less_than_12_percent(max_tokens: int, epochs: int) -> None:
    lengths = draw_lengths(1_000_000)
    shapes = batch_shapes(lengths, max_tokens)
    padded = to_edges(lengths)(shapes)
    assert (padded >= shapes).all()
    assert len(set(map(tuple, padded.tolist()))) < 0.05 * epochs * len(padded)
    symbols, padded_symbols = ((x[:, 0] * x[:, 1:].sum(axis=1)).sum() for x in (shapes, padded))
    assert padded_symbols < 1.12 * symbols


def test_edges_grow_with_length_and_follow_the_data() -> None:
    lengths = draw_lengths(100_000).ravel()
    edges = length_edges(lengths)
    steps = np.diff(edges)
    assert steps[-1] > steps[0]
    padded = sum(round_up_length(length, edges) for length in lengths.tolist())
    assert padded <= (1 + LENGTH_PADDING) * lengths.sum()
    assert edges[-1] == lengths.max()  # a model may have no position beyond
    assert length_edges(np.full(100, 512)) == [512]
    assert length_edges(np.array([], dtype=int)) == []
    assert length_edges(np.array([LONGEST + 1])) == []
    assert round_up_length(13, []) == 16


def test_counts_are_padded_by_a_tenth_at_most() -> None:
    assert [round_up_count(number) for number in (0, 1, 7, 20, 21)] == [1, 1, 7, 20, 22]
    assert all(number <= round_up_count(number) <= 1.1 * number + 1 for number in range(1, 3000))
