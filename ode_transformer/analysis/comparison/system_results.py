"""Results of one translation system on a test set: translations, accuracy of tokens, attention maps.

<output>/systems/NAME/hypotheses.txt    a line for each sentence
<output>/systems/NAME/accuracy.json     counts of right tokens, see ``TokenAccuracy``
<output>/systems/NAME/*.done            digests of the inputs of these two
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from ode_transformer.analysis.comparison.attention_plots import DrawnMap, drawn_map
from ode_transformer.analysis.comparison.token_accuracy import TokenAccuracy
from ode_transformer.decoding.attention_maps import attention_maps, axis_tokens
from ode_transformer.decoding.binarised import Split
from ode_transformer.decoding.split_translation import joined_pieces, reference_lines, translate_split
from ode_transformer.decoding.teacher_forcing import predict_tokens
from ode_transformer.decoding.translate import load_hub
from ode_transformer.support.console import ProgressMeter, print_progress
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import content_digest, file_name, write_text
from ode_transformer.support.jobs import Jobs
from ode_transformer.support.json_file import read_json
from ode_transformer.support.lines import read_lines


@dataclass(frozen=True)
class ComparisonOptions:
    """Options that all systems of a comparison share; the search options are those of ``translate``.

    :param data: folder of binary data
    :param split: split to translate
    :param output: folder for the results
    :param sentences: number of sentences from the beginning of the split; None for all
    :param maps: numbers of the sentences whose attention maps are drawn, from 1 on
    :param max_tokens: tokens in a batch when the accuracy of tokens is measured
    """

    data: Path
    split: str
    output: Path
    sentences: int | None
    maps: Sequence[int]
    max_tokens: int
    source_lang: str | None
    target_lang: str | None
    remove_bpe: str | None
    beam: int
    lenpen: float
    max_len_b: int
    batch_size: int
    cpu: bool


class ComparedSystem:
    """A checkpoint, applied to the first sentences of a split.

    :param name: name of the system and of its folder
    :param path: checkpoint
    :raises UserError: the checkpoint or the data cannot be read, or a sentence is longer than the model takes
    """

    def __init__(self, options: ComparisonOptions, name: str, path: Path) -> None:
        self.options, self.name = options, name
        data, split = options.data, options.split
        self.hub = load_hub(
            path, data, options.source_lang, options.target_lang, batch_size=options.batch_size, cpu=options.cpu
        )
        self.model, self.task = self.hub.models[0], self.hub.task
        self.remove_bpe = joined_pieces(self.task, options.remove_bpe)
        self.split = Split(self.model, self.task, data, split, path)
        self.lines = self.split.first_numbers(options.sentences)
        if absent := [line for line in options.maps if line > len(self.lines)]:
            raise UserError(f"--maps {absent[0]}: the sentences are 1 to {len(self.lines)}")
        self.directory = options.output / "systems" / file_name(name)
        self.directory.mkdir(parents=True, exist_ok=True)
        languages = self.task.cfg.source_lang, self.task.cfg.target_lang
        dictionaries = [data / f"dict.{language}.txt" for language in languages]
        self.digest = content_digest([path, *dictionaries, *sorted(data.glob(f"{split}.*-*.*"))])
        self.request = [self.digest, languages, len(self.lines)]

    def _jobs(self) -> Jobs:
        return Jobs(self.directory, Jobs(self.directory).digest_of(self.request), print_progress)

    def references(self) -> list[str]:
        """Return the references as plain text."""
        return reference_lines(self.task, self.split, self.lines, self.remove_bpe)

    def source_lengths(self) -> list[int]:
        """Return the lengths of the sources in tokens as the model reads them, without the end symbol."""
        return [int(size) - 1 for size in self.split.dataset.src_sizes[: len(self.lines)]]

    def hypotheses(self) -> list[str]:
        """Return the best translation of each sentence; decode unless that is done."""
        options, result = self.options, self.directory / "hypotheses.txt"
        search = {name: getattr(options, name) for name in ("beam", "lenpen", "max_len_b")}

        def decode() -> None:
            size = 4 * options.batch_size
            lines = translate_split(self.hub, self.split, self.lines, self.remove_bpe, size, **search)
            write_text(result, "".join(f"{line}\n" for line in lines))

        self._jobs().run("decode", [search, options.batch_size, self.remove_bpe], result, decode)
        return read_lines(result)

    def accuracy(self) -> TokenAccuracy:
        """Return counts of right tokens under teacher forcing; count unless that is done."""
        result = self.directory / "accuracy.json"

        def count() -> None:
            accuracy, meter = TokenAccuracy(), ProgressMeter("sentences forced", len(self.lines))
            batches = map(self.split.sample, self.split.batches(len(self.lines), self.options.max_tokens))
            sentences = 0
            for forced in predict_tokens(self.model, batches, self.task.target_dictionary.pad()):
                accuracy.add(forced)
                sentences += len(forced.numbers)
                meter.update(sentences)
            write_text(result, json.dumps(asdict(accuracy)))

        self._jobs().run("accuracy", self.options.max_tokens, result, count)
        record = read_json(result, dict)
        counts = {name: {int(k): tuple(pair) for k, pair in record[name].items()} for name in ("positions", "tokens")}
        return TokenAccuracy(**counts, loss=record["loss"])

    def maps(self) -> list[DrawnMap]:
        """Return all attention maps of the sentences of ``--maps``."""
        maps = []
        for line in self.options.maps:
            (row,) = self.split.rows([line - 1])
            tokens = axis_tokens(row, self.split.dictionaries)
            for title, attention in attention_maps(self.model, self.split.dataset.collater([row])).items():
                maps.append(drawn_map(line, title, attention, tokens))
        return maps

    def frequencies(self) -> list[int] | None:
        """Return the frequency of each token of the target's dictionary in the training data; None without these."""
        options = self.options
        files = sorted(options.data.glob(f"train.*-*.{self.task.cfg.target_lang}.*"))
        if not files:
            return None
        result = options.output / "frequencies.json"

        def count() -> None:
            train = Split(self.model, self.task, options.data, "train", options.data)
            frequencies = np.zeros(len(self.task.target_dictionary), dtype=np.int64)
            meter = ProgressMeter("training sentences counted", len(train.lengths))
            for start in range(0, len(train.lengths), 10_000):
                chunk = range(start, min(start + 10_000, len(train.lengths)))
                tokens = torch.cat([row["target"] for row in train.rows(chunk)])
                frequencies += np.bincount(tokens.numpy(), minlength=len(frequencies))
                meter.update(chunk.stop)
            write_text(result, json.dumps(frequencies.tolist()))

        Jobs(options.output, report=print_progress).run("frequencies", content_digest(files), result, count)
        return read_json(result, list)
