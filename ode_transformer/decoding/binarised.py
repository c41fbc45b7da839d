"""Split of a binarised data set, checked as it is read."""

from __future__ import annotations

import contextlib
import io
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ode_transformer.support.errors import UserError

T = TypeVar("T")


def on_device(sample: dict[str, Any], device: Any) -> dict[str, Any]:
    """Move the tensors of fairseq's batch, or of a part of it, to a device."""
    from fairseq.utils import apply_to_sample

    moved: dict[str, Any] = apply_to_sample(lambda tensor: tensor.to(device), sample)
    return moved


class Split:
    """One split of a model's data: sentence pairs, or the samples into which a language model's options divide a text.

    The word "sentence" below stands for both.

    :param model: fairseq's model, which limits the length of a sentence
    :param task: task of the model
    :param data: directory that fairseq-preprocess wrote
    :param name: such as ``train``
    :param path: checkpoint of the model, for errors
    :raises UserError: the data are missing or broken
    """

    def __init__(self, model: Any, task: Any, data: Path, name: str, path: Path) -> None:
        self.description = f"{data}: no data of the split {name!r} that belongs to {path}"
        self.names = data, name, path
        self._read(lambda: task.load_dataset(name))
        self.dataset = task.dataset(name)
        self.dictionaries = {"source": task.source_dictionary, "target": task.target_dictionary}
        if hasattr(self.dataset, "tgt_sizes"):
            limits = zip(task.max_positions(), model.max_positions(), strict=True)
            self.longest = tuple(min(limit) for limit in limits)
            if self.dataset.tgt_sizes is None:
                raise UserError(f"{self.description}: it has no target side")
            lengths = np.stack([self.dataset.src_sizes, self.dataset.tgt_sizes])
        else:
            self.longest = (model.max_positions(),)
            lengths = np.asarray(self.dataset.sizes)[None]
        self.lengths_by_side = lengths
        self.lengths = lengths.max(axis=0)
        cfg = getattr(getattr(model, "decoder", None), "cfg", None)
        self.max_cells = getattr(cfg, "max_joint_cells", 0)  # of a Reformer, whose observed batches are not divided
        self.too_long: np.ndarray = np.any(lengths > np.array(self.longest)[:, None], axis=0)

    def first_numbers(self, count: int | None = None) -> range:
        """Return the numbers of the first ``count`` sentences (default: all), none of which may be too long.

        :raises UserError: names the first that is too long for the model
        """
        too_long = self.too_long[:count]
        for number in np.flatnonzero(too_long):
            data, name, path = self.names
            raise UserError(f"{data}: sentence {number + 1} of {name} is longer than {path} takes")
        return range(len(too_long))

    def sentence_numbers(self, count: int | None = None) -> list[int]:
        """Return the numbers of the first ``count`` sentences (default: all) that are not too long for the model.

        :raises UserError: there are none
        """
        numbers: list[int] = np.flatnonzero(~self.too_long[:count]).tolist()
        if not numbers:
            raise UserError(f"{self.description}: it has no sentence that the model takes")
        return numbers

    def batches(self, count: int | None, max_tokens: int) -> list[list[int]]:
        """Sort :meth:`sentence_numbers` by length; divide them into batches of at most ``max_tokens``, with padding.

        A batch of a model over a source × target grid also has at most ``--max-joint-cells`` cells.
        """
        numbers = np.array(self.sentence_numbers(count))
        batches: list[list[int]] = [[]]
        longest = np.zeros(len(self.lengths_by_side), dtype=np.int64)  # of the last batch, by side
        for number in numbers[np.argsort(self.lengths[numbers], kind="stable")].tolist():
            rows, longest = len(batches[-1]) + 1, np.maximum(longest, self.lengths_by_side[:, number])
            too_many_cells = self.max_cells and rows * longest.prod() > self.max_cells
            if batches[-1] and (rows * longest.max() > max_tokens or too_many_cells):
                batches.append([])
                longest = self.lengths_by_side[:, number]
            batches[-1].append(number)
        return batches

    def rows(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """Return sentences, each with ``source`` and ``target`` [tokens].

        :raises UserError: they cannot be read, or have tokens that are not in the dictionaries
        """

        def read() -> list[dict[str, Any]]:
            rows = [self.dataset[number] for number in numbers]
            for side, dictionary in self.dictionaries.items():
                if any(row[side].max() >= len(dictionary) for row in rows):
                    raise ValueError("it has tokens that are not in the dictionary")
            return rows

        return self._read(read)

    def sample(self, numbers: Sequence[int]) -> dict[str, Any]:
        """Return sentences as fairseq's batch."""
        sample: dict[str, Any] = self.dataset.collater(self.rows(numbers))
        return sample

    def _read(self, read: Callable[[], T]) -> T:
        with contextlib.redirect_stderr(io.StringIO()):  # when fairseq's reader fails, it fails again as it is deleted
            try:
                return read()
            except (AssertionError, LookupError, OSError, OverflowError, struct.error, TypeError, ValueError) as error:
                failure = str(error)
        raise UserError(f"{self.description}: {failure}")
