"""Batches of sentence pairs that are read and padded at once, where fairseq copies sentence by sentence.

PyTorch's loader hands all numbers of a batch to ``__getitems__`` of a data set that has it, which fairseq's has not.
The batches are those of fairseq. Data that change while they are read, as by ``--truncate-source``, are left to it.
``fairseq_corrections`` puts these functions in their places.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from fairseq.data import LanguagePairDataset
from fairseq.data.indexed_dataset import MMapIndexedDataset
from torch import Tensor

_CHANGES = ("append_eos_to_target", "append_bos", "remove_eos_from_source", "align_dataset", "constraints")


@dataclass(frozen=True)
class PairBatch:
    """Numbers of the pairs of a batch, and their binarised texts."""

    numbers: np.ndarray
    source: MMapIndexedDataset
    target: MMapIndexedDataset


def read_pairs(pairs: LanguagePairDataset, numbers: Sequence[int]) -> PairBatch | None:
    """Return the pairs with these numbers for :func:`pad_pairs`, or None if fairseq has to read them."""
    texts = pairs.src, pairs.tgt
    is_plain = type(pairs) is LanguagePairDataset and {type(text) for text in texts} == {MMapIndexedDataset}
    # Of several processes the last may get no pair.
    if not (is_plain and len(numbers) and pairs.input_feeding) or any(getattr(pairs, name) for name in _CHANGES):
        return None
    return PairBatch(np.asarray(numbers), *texts)


def pad_pairs(samples: PairBatch, pad_idx: int, eos_idx: int, **options: Any) -> dict[str, Any]:
    """Return the batch that fairseq's function ``collate`` returns for the pairs."""
    left, multiple = options["left_pad_target"], options["pad_to_multiple"]
    source = read_padded(samples.source, samples.numbers, pad_idx, options["left_pad_source"], multiple)
    lengths, order = source.ne(pad_idx).sum(1).sort(descending=True)
    numbers = samples.numbers[order.numpy()]
    target = read_padded(samples.target, numbers, pad_idx, left, multiple)
    previous = read_padded(samples.target, numbers, pad_idx, left, multiple, first=eos_idx)
    return {
        "id": torch.from_numpy(numbers),
        "nsentences": len(numbers),
        "ntokens": int(target.ne(pad_idx).sum()),
        "net_input": {"src_tokens": source[order], "src_lengths": lengths, "prev_output_tokens": previous},
        "target": target,
    }


def read_padded(
    text: MMapIndexedDataset, numbers: np.ndarray, padding: int, left: bool, multiple: int, first: int | None = None
) -> Tensor:
    """Return sentences [B, T] with padding, on the left or on the right, to a multiple in length.

    :param first: symbol before each sentence, which then lacks its last one
    """
    index = text._index
    tokens = np.frombuffer(text._bin_buffer, dtype=index.dtype)
    starts, sizes = index._pointers[numbers] // tokens.itemsize, index.sizes[numbers]
    length = -(-int(sizes.max()) // multiple) * multiple
    indices = np.arange(length) - (length - sizes[:, None] if left else 0)
    is_token = (indices >= 0) & (indices < sizes[:, None])
    if first is not None:
        indices = indices - 1
    rows = np.where(is_token, tokens.take(starts[:, None] + indices, mode="clip"), padding)
    if first is not None:
        rows[is_token & (indices < 0)] = first
    return torch.from_numpy(rows.astype(np.int64))
