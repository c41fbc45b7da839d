"""Splits of a binarised data set: their batches, and their target lines as fairseq-generate prints them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ode_transformer.decoding.translate import normalize_spaces
from ode_transformer.support.errors import UserError
from ode_transformer.support.subword_models import kind_of_symbols


class Split:
    """One split of a model's data: sentence pairs, or the samples into which a language model's options divide a text.

    The word "sentence" below stands for both.

    :param model: fairseq's model, which limits the length of a sentence
    :param name: such as ``train``
    :param path: checkpoint of the model, for errors
    """

    def __init__(self, model: Any, task: Any, data: Path, name: str, path: Path) -> None:
        self.names = data, name, path
        task.load_dataset(name)
        self.dataset = task.dataset(name)
        self.dictionaries = {"source": task.source_dictionary, "target": task.target_dictionary}
        if hasattr(self.dataset, "tgt_sizes"):
            limits = zip(task.max_positions(), model.max_positions(), strict=True)
            self.longest = tuple(min(limit) for limit in limits)
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
        """Return the numbers of the first ``count`` sentences (default: all) that are not too long for the model."""
        numbers: list[int] = np.flatnonzero(~self.too_long[:count]).tolist()
        return numbers

    def batches(self, count: int | None, max_tokens: int) -> list[list[int]]:
        """Sort :meth:`sentence_numbers` by length; divide them into batches of at most ``max_tokens``, with padding.

        A batch of a model over a source × target grid also has at most ``--max-joint-cells`` positions of the grid.
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
        """Return sentences, each with ``source`` and ``target`` [tokens]."""
        return [self.dataset[number] for number in numbers]

    def sample(self, numbers: Sequence[int]) -> dict[str, Any]:
        """Return sentences as fairseq's batch."""
        sample: dict[str, Any] = self.dataset.collater(self.rows(numbers))
        return sample


def joined_pieces(task: Any, remove_bpe: str | None) -> str | None:
    """Return how the pieces of a model's translations are joined to words; None for whole words.

    :param remove_bpe: value of ``--remove-bpe``; None for the marks in the target dictionary, "none" to join nothing
    """
    if remove_bpe is None:
        return kind_of_symbols(task.target_dictionary.symbols)
    return None if remove_bpe == "none" else remove_bpe


def target_line(task: Any, tokens: Any, remove_bpe: str | None, escape_unk: bool = False) -> str:
    """Convert token numbers to a line of the target language, as fairseq-generate does.

    :param escape_unk: write unknown tokens of references unlike those of hypotheses, so that they never match
    """
    return normalize_spaces(task.target_dictionary.string(tokens.int().cpu(), remove_bpe, escape_unk=escape_unk))
