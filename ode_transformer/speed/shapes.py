"""Shapes to which batches are padded, so that few recordings serve many batches.

Edges of lengths are chosen for the lengths of the data: as few as keep the padding of all sentences below a share. They
lie the closer the shorter the sentences are. The number of rows grows by a factor.
"""

from bisect import bisect_left

import numpy as np

MULTIPLES = (8, 4, 2, 1)  # of which lengths are tried in turn: tensor cores like the first ones
LENGTH_PADDING = 0.065  # largest share of padding in the lengths
COUNT_GROWTH = 1.1  # from one padded number of rows to the next
LONGEST = 4096  # tokens; what is longer has no edge


def length_edges(lengths: np.ndarray) -> list[int]:
    """Return the ascending edges to which lengths are rounded up: the fewest that pad at most ``LENGTH_PADDING``.

    :param lengths: of all sentences, in tokens
    """
    lengths = lengths[lengths <= LONGEST]
    if not len(lengths):
        return []
    for multiple in MULTIPLES:
        edges, padding = _fewest_edges(np.bincount(lengths), multiple)
        if padding <= LENGTH_PADDING * lengths.sum():
            break
    return [*edges[:-1], int(lengths.max())]  # a model may have no position beyond


def _fewest_edges(counts: np.ndarray, multiple: int) -> tuple[list[int], float]:
    """Return the fewest edges, or all, and the tokens of padding: by dynamic programming over the number of edges.

    :param counts: number of sentences of each length, [L]
    """
    edges = np.arange(0, len(counts) - 1 + multiple, multiple)
    counts = np.append(counts, np.zeros(edges[-1] + 1 - len(counts), counts.dtype))
    sentences, tokens = counts.cumsum()[edges], (counts * np.arange(len(counts))).cumsum()[edges]
    # padding[i, j]: of the sentences that are longer than edge i and at most as long as edge j, when padded to j
    padding = edges * (sentences - sentences[:, None]) - (tokens - tokens[:, None]).astype(float)
    padding[np.tril_indices(len(edges))] = np.inf
    least = np.where(edges == 0, 0.0, np.inf)  # padding of all sentences up to each edge
    previous: list[np.ndarray] = []
    while len(previous) < len(edges) - 1 and not least[-1] <= LENGTH_PADDING * tokens[-1]:
        totals = least[:, None] + padding
        previous.append(totals.argmin(axis=0))
        least = totals.min(axis=0)
    chosen, last = [], len(edges) - 1
    for earlier in reversed(previous):
        chosen.append(int(edges[last]))
        last = earlier[last]
    return chosen[::-1], float(least[-1])


def round_up_length(number: int, edges: list[int]) -> int:
    """Return the smallest edge that is not below a number; beyond the last edge the next multiple of 8."""
    index = bisect_left(edges, number)
    return edges[index] if index < len(edges) else -(-number // MULTIPLES[0]) * MULTIPLES[0]


def round_up_count(number: int) -> int:
    """Return the number of rows or positions, from 1 on, to which a batch with ``number`` of them is padded."""
    edge = 1
    while edge < number:
        edge = max(edge + 1, int(COUNT_GROWTH * edge))
    return edge
