"""Splits of a binarised data set: their batches, and their target lines as fairseq-generate prints them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ode_transformer.decoding.indexed_text import IndexedText, block_ranges
from ode_transformer.decoding.trained_model import TrainedModel
from ode_transformer.decoding.translate import normalize_spaces
from ode_transformer.nn import END, PADDING
from ode_transformer.support.errors import UserError
from ode_transformer.support.subword_models import kind_of_symbols


class Split:
    """One split of a model's data: sentence pairs, or the samples into which a language model's options divide a text.

    The word "sentence" below stands for both.

    :param trained: model that limits the length of a sentence
    :param name: such as ``train``
    :raises UserError: the split is missing or damaged
    """

    def __init__(self, trained: TrainedModel, data: Path, name: str) -> None:
        self.names = data, name, trained.path
        self.dictionaries = {"source": trained.source_dictionary, "target": trained.target_dictionary}
        self._rows: _PairRows | _SampleRows
        if trained.languages is None:
            self._rows = _SampleRows(data / name, trained.task_options)
            self.longest: tuple[int, ...] = (trained.max_positions,)
        else:
            self._rows = _PairRows(data, name, trained.languages)
            self.longest = trained.max_positions
        self.lengths_by_side = self._rows.lengths  # [sides, sentences]
        self.lengths = self.lengths_by_side.max(axis=0)
        grid = getattr(getattr(trained.model, "decoder", None), "grid", None)
        self.max_cells = 0 if grid is None else grid.max_cells  # of a Reformer, whose observed batches are not divided
        self.too_long: np.ndarray = np.any(self.lengths_by_side > np.array(self.longest)[:, None], axis=0)

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
        return [{"id": number, **self._rows[number]} for number in numbers]

    def sample(self, numbers: Sequence[int]) -> dict[str, Any]:
        """Return sentences as a batch with the names of fairseq's, padding on the right."""
        rows = self.rows(numbers)
        source, target = (_padded([row[side] for row in rows]) for side in ("source", "target"))
        net_input = {"src_tokens": source, "src_lengths": source.ne(PADDING).sum(1)}
        if isinstance(self._rows, _PairRows):
            previous = [torch.cat([row["target"][-1:], row["target"][:-1]]) for row in rows]  # the end begins it
            net_input["prev_output_tokens"] = _padded(previous)
        return {
            "id": torch.tensor(list(numbers)),
            "nsentences": len(rows),
            "ntokens": int(target.ne(PADDING).sum()),
            "net_input": net_input,
            "target": target,
        }


def _padded(rows: Sequence[Tensor]) -> Tensor:
    return pad_sequence(list(rows), batch_first=True, padding_value=PADDING)


class _PairRows:
    """Sentence pairs, in the order of the files."""

    def __init__(self, data: Path, name: str, languages: tuple[str, str]) -> None:
        source, target = languages
        for pair in (f"{source}-{target}", f"{target}-{source}"):
            prefixes = [data / f"{name}.{pair}.{language}" for language in languages]
            if all(prefix.with_name(f"{prefix.name}.idx").exists() for prefix in prefixes):
                break
        else:
            raise UserError(f"{data}: no split {name} of {source} and {target}: fairseq-preprocess writes it")
        self.source, self.target = map(IndexedText, prefixes)
        if len(self.source) != len(self.target):
            counts = f"{len(self.source):,} and {len(self.target):,}"
            raise UserError(f"{data}: {name} has {counts} sentences of {source} and {target}")
        self.lengths = np.stack([self.source.sizes, self.target.sizes]).astype(np.int64)

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        return {"source": self.source[number], "target": self.target[number]}


class _SampleRows:
    """Samples of a language model's text; the source of each are the words before those of its target."""

    def __init__(self, prefix: Path, options: Any) -> None:
        if not prefix.with_name(f"{prefix.name}.idx").exists():
            raise UserError(f"{prefix.parent}: no split {prefix.name}: fairseq-preprocess --only-source writes it")
        text = IndexedText(prefix)
        self.stream = text.stream()
        mode = str(options.get("sample_break_mode") or "none")
        self.ranges = block_ranges(text.sizes, int(options.get("tokens_per_sample") or 1024), mode)
        self.lengths = (self.ranges[:, 1] - self.ranges[:, 0])[None]

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        begin, end = self.ranges[number]
        before = [END] if begin == 0 else self.stream[begin - 1 : begin]
        source = np.concatenate([before, self.stream[begin : end - 1]]).astype(np.int64)
        return {"source": torch.from_numpy(source), "target": torch.from_numpy(self.stream[begin:end].copy())}


def joined_pieces(dictionary: Any, remove_bpe: str | None) -> str | None:
    """Return how the pieces of a model's translations are joined to words; None for whole words.

    :param dictionary: of the target
    :param remove_bpe: value of ``--remove-bpe``; None for the marks in the dictionary, "none" to join nothing
    """
    if remove_bpe is None:
        return kind_of_symbols(dictionary.symbols)
    return None if remove_bpe == "none" else remove_bpe


def target_line(dictionary: Any, tokens: Any, remove_bpe: str | None, escape_unk: bool = False) -> str:
    """Convert token numbers to a line of the target language, as fairseq-generate does.

    :param escape_unk: write unknown tokens of references unlike those of hypotheses, so that they never match
    """
    return normalize_spaces(dictionary.string(tokens.int().cpu(), remove_bpe, escape_unk=escape_unk))
