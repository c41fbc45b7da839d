"""A part of a binarised data set, checked as it is read."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ode_transformer.support.errors import UserError

T = TypeVar("T")


def on_device(sample: dict[str, Any], device: Any) -> dict[str, Any]:
    """fairseq's batch, or a part of it, with its tensors on ``device``."""
    from fairseq.utils import apply_to_sample

    moved: dict[str, Any] = apply_to_sample(lambda tensor: tensor.to(device), sample)
    return moved


class Split:
    """One split of the data that belong to a model: sentence pairs, or a language model's samples of one text.

    What is said of sentences goes for samples: the task cuts the text into them as the model's options say.

    :param model: fairseq's model, which limits the length of a sentence
    :param task: its task
    :param data: directory that fairseq-preprocess wrote
    :param name: such as ``train``
    :param path: the model's checkpoint, for errors
    :raises UserError: the data are missing or broken
    """

    def __init__(self, model: Any, task: Any, data: Path, name: str, path: Path) -> None:
        self.described = f"{data}: no data of the split {name!r} that belongs to {path}"
        self._read(lambda: task.load_dataset(name))
        self.dataset = task.dataset(name)
        self.dictionaries = {"source": task.source_dictionary, "target": task.target_dictionary}
        if hasattr(self.dataset, "tgt_sizes"):
            limits = zip(task.max_positions(), model.max_positions(), strict=True)
            self.longest = tuple(min(limit) for limit in limits)
            if self.dataset.tgt_sizes is None:
                raise UserError(f"{self.described}: it has no target side")
            lengths = np.stack([self.dataset.src_sizes, self.dataset.tgt_sizes])
        else:
            self.longest = (model.max_positions(),)
            lengths = np.asarray(self.dataset.sizes)[None]
        self.lengths = lengths.max(axis=0)
        self.too_long: np.ndarray = np.any(lengths > np.array(self.longest)[:, None], axis=0)

    def numbers(self, count: int | None = None) -> list[int]:
        """The first ``count`` sentences (default: all), without those that the model does not take.

        :raises UserError: none are left
        """
        kept: list[int] = np.flatnonzero(~self.too_long[:count]).tolist()
        if not kept:
            raise UserError(f"{self.described}: it has no sentence that the model takes")
        return kept

    def batches(self, count: int | None, max_tokens: int) -> list[list[int]]:
        """:meth:`numbers` sorted by length, divided into batches of at most so many tokens, padding included."""
        numbers = np.array(self.numbers(count))
        batches: list[list[int]] = [[]]
        for number in numbers[np.argsort(self.lengths[numbers], kind="stable")].tolist():
            if batches[-1] and (len(batches[-1]) + 1) * self.lengths[number] > max_tokens:
                batches.append([])
            batches[-1].append(number)
        return batches

    def rows(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """Sentences: ``source`` and ``target`` [tokens] each.

        :raises UserError: they cannot be read, or have tokens that the dictionaries lack
        """

        def read() -> list[dict[str, Any]]:
            rows = [self.dataset[number] for number in numbers]
            for side, dictionary in self.dictionaries.items():
                if any(row[side].max() >= len(dictionary) for row in rows):
                    raise ValueError("it has tokens that are not in the dictionary")
            return rows

        return self._read(read)

    def sample(self, numbers: Sequence[int]) -> dict[str, Any]:
        """Sentences as fairseq's batch."""
        sample: dict[str, Any] = self.dataset.collater(self.rows(numbers))
        return sample

    def _read(self, read: Callable[[], T]) -> T:
        with contextlib.redirect_stderr(io.StringIO()):  # fairseq's reader, when it fails, fails again when deleted
            try:
                return read()
            except (AssertionError, OSError, ValueError) as error:
                failure = str(error)
        raise UserError(f"{self.described}: {failure}")
