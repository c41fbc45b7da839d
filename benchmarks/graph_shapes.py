"""How many shapes a training by CUDA graphs records, and what their padding costs: a simulation without a model.

A million sentence pairs have log-normal lengths, with the means of WMT's. fairseq batches them; the batches are padded
as ``--cuda-graphs`` pads them, to multiples of 8 and 16, and by fairseq's own ``--num-batch-buckets``.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from fairseq.data import data_utils

from ode_transformer.speed.shapes import length_edges, round_up_count, round_up_length

MEANS = 29, 31  # tokens of source and target
SPREAD, CORRELATION = 0.6, 0.8  # of the logarithms of the lengths
LONGEST = 250  # tokens, as the papers' recipes filter

# Pads the rows, source lengths and target lengths of batches.
Padding = Callable[[np.ndarray], np.ndarray]


def draw_lengths(pairs: int, seed: int = 1) -> np.ndarray:
    """Return the lengths of sources and targets, [pairs, 2]."""
    normal = np.random.default_rng(seed).standard_normal((pairs, 2))
    normal[:, 1] = CORRELATION * normal[:, 0] + np.sqrt(1 - CORRELATION**2) * normal[:, 1]
    lengths = np.array(MEANS) * np.exp(SPREAD * normal - SPREAD**2 / 2)
    return np.clip(lengths.round(), 2, LONGEST).astype(np.int64)


def batch_shapes(lengths: np.ndarray, max_tokens: int, buckets: Sequence[np.ndarray] = ()) -> np.ndarray:
    """Return rows, source length and target length of each batch of an epoch, [batches, 3].

    :param buckets: lengths to which fairseq pads sources, and those for targets, before it makes batches
    """
    if buckets:
        lengths = np.stack([b[np.searchsorted(b, x)] for b, x in zip(buckets, lengths.T, strict=True)], axis=1)
    order = np.lexsort((lengths[:, 1], lengths[:, 0]))
    sizes = lengths.max(axis=1)
    batches = data_utils.batch_by_size(order, lambda index: sizes[index], sizes[order], max_tokens=max_tokens)
    return np.array([(len(batch), *lengths[batch].max(axis=0)) for batch in batches])


def table_row(name: str, shapes: np.ndarray, padded: np.ndarray, real: float, epochs: int) -> str:
    """Return a row of the table: batches, shapes, shares of replays, padding.

    :param real: symbols of the batches without further padding
    """
    uses = Counter(map(tuple, padded.tolist()))
    share = [1 - len(uses) / (count * len(padded)) for count in (1, epochs)]
    symbols = (padded[:, 0] * padded[:, 1:].sum(axis=1)).sum()
    cells = (
        f"{len(shapes):,}",
        f"{len(uses):,}",
        *(f"{100 * s:.1f}%" for s in share),
        f"{100 * (symbols / real - 1):.1f}%",
    )
    return f"| {name} | {' | '.join(cells)} |"


def length_quantiles(lengths: np.ndarray, number: int) -> np.ndarray:
    """Return fairseq's buckets; its own function passes NumPy an argument that NumPy 2 no longer has."""
    return np.unique(np.percentile(lengths, np.linspace(0, 100, number + 1), method="lower")[1:])


def to_multiples(multiple: int) -> Padding:
    """Return a padding of lengths to multiples; rows stay."""
    return lambda shapes: np.concatenate([shapes[:, :1], -(-shapes[:, 1:] // multiple) * multiple], axis=1)


def to_edges(lengths: np.ndarray) -> Padding:
    """Return the padding of ``--cuda-graphs`` for the lengths of the data."""
    edges = length_edges(lengths.ravel())

    def pad(shapes: np.ndarray) -> np.ndarray:
        return np.array(
            [(round_up_count(b), round_up_length(s, edges), round_up_length(t, edges)) for b, s, t in shapes.tolist()]
        )

    return pad


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=1_000_000, metavar="N", help="default: %(default)s")
    parser.add_argument("--max-tokens", type=int, nargs="+", default=[4096, 16384], metavar="N", help="of a batch")
    parser.add_argument("--epochs", type=int, default=5, metavar="N", help="of the second share (default: %(default)s)")
    args = parser.parse_args(argv)
    lengths = draw_lengths(args.pairs)
    for max_tokens in args.max_tokens:
        print(f"\n{max_tokens:,} tokens in a batch\n")
        print(f"| padding | batches | shapes | replayed, 1 epoch | replayed, {args.epochs} epochs | padding added |")
        print("|---|---:|---:|---:|---:|---:|")
        shapes = batch_shapes(lengths, max_tokens)
        real = float((shapes[:, 0] * shapes[:, 1:].sum(axis=1)).sum())
        paddings = {"`--cuda-graphs`": to_edges(lengths), **{f"multiples of {m}": to_multiples(m) for m in (8, 16)}}
        for name, pad in paddings.items():
            print(table_row(name, shapes, pad(shapes), real, args.epochs))
        for number in (8, 16, 24):
            buckets = [length_quantiles(x, number) for x in lengths.T]
            bucketed = batch_shapes(lengths, max_tokens, buckets)
            print(table_row(f"`--num-batch-buckets {number}`", bucketed, bucketed, real, args.epochs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
