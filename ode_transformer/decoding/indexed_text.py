"""Binarised texts as fairseq-preprocess writes them: ``NAME.idx`` says where each sentence lies in ``NAME.bin``.

    NAME.idx   9 bytes of the format, its version, the type of a word's number, N, sizes int32[N], starts int64[N]

Axes: N sentences, T words.
"""

import struct
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ode_transformer.support.errors import UserError

_MAGIC, _HEADER = b"MMIDIDX\x00\x00", struct.Struct("<9sQBQ")
_TYPES = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 8: np.uint16, 9: np.uint32, 10: np.uint64}


class IndexedText:
    """A binarised text, read from disk as it is asked for.

    :param prefix: path of both files without ``.idx`` and ``.bin``
    :ivar sizes: words of each sentence with its end, [N]
    :raises UserError: the files are in another of fairseq's formats, or damaged
    """

    def __init__(self, prefix: Path) -> None:
        index, words = prefix.with_name(f"{prefix.name}.idx"), prefix.with_name(f"{prefix.name}.bin")
        content = np.memmap(index, np.uint8, "r") if index.stat().st_size else np.zeros(0, np.uint8)
        if len(content) < _HEADER.size or bytes(content[: len(_MAGIC)]) != _MAGIC:
            raise UserError(f"{index}: not in the format of fairseq-preprocess --dataset-impl mmap")
        _, _, code, count = _HEADER.unpack(bytes(content[: _HEADER.size]))
        if code not in _TYPES or len(content) != _HEADER.size + 12 * count:
            raise UserError(f"{index}: damaged: it has {len(content):,} bytes for {count:,} sentences")
        numbers = content[_HEADER.size :]
        self.sizes: NDArray[np.int32] = numbers[: 4 * count].view(np.int32)
        starts: NDArray[np.int64] = np.frombuffer(numbers[4 * count :].tobytes(), np.int64)
        dtype = np.dtype(_TYPES[code])
        self.starts = starts // dtype.itemsize
        # A file without a byte cannot be mapped.
        self.words = np.memmap(words, dtype, "r") if words.stat().st_size else np.zeros(0, dtype)
        ends = self.starts + self.sizes
        if count and (self.sizes.min() < 0 or self.starts.min() < 0 or ends.max() > len(self.words)):
            raise UserError(f"{words}: damaged: sentences lie outside of its {len(self.words):,} words")

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, number: int) -> Tensor:
        """Return the numbers of a sentence's words, [T]."""
        start = self.starts[number]
        return torch.from_numpy(self.words[start : start + self.sizes[number]].astype(np.int64))

    def stream(self) -> NDArray[np.int64]:
        """Return the words of all sentences in a row."""
        if not len(self):
            return np.zeros(0, np.int64)
        return np.concatenate([self.words[s : s + n] for s, n in zip(self.starts, self.sizes, strict=True)]).astype(
            np.int64
        )


def block_ranges(sizes: NDArray[np.int32], length: int, mode: str) -> NDArray[np.int64]:
    """Return the samples into which a language model's text is divided, begin and end in its stream, [samples, 2].

    :param length: words of a sample, at most
    :param mode: fairseq's ``--sample-break-mode``: none, complete or eos
    :raises UserError: it is another mode
    """
    total, ends = int(sizes.sum()), np.cumsum(sizes, dtype=np.int64)
    if mode == "none":
        begins = np.arange(0, total, length, dtype=np.int64)
        return np.stack([begins, np.minimum(begins + length, total)], axis=1)
    if mode == "eos":
        return np.stack([ends - sizes, ends], axis=1)
    if mode != "complete":
        raise UserError(f"--sample-break-mode {mode} of the training is not read here, only none, complete and eos")
    ranges, begin, end = [], 0, 0
    for size in sizes.tolist():
        if end > begin and end - begin + size > length:
            ranges.append((begin, end))
            begin = end
        end += size
    if end > begin:
        ranges.append((begin, end))
    return np.array(ranges, dtype=np.int64).reshape(-1, 2)
