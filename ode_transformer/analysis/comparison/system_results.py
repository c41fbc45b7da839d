"""What one translation system does on a test set: decoded, teacher-forced, and where it looks; kept, to go on.

<output>/systems/NAME/hypotheses.txt    a line for each sentence
<output>/systems/NAME/accuracy.json     counts of right tokens, see ``TokenAccuracy``
<output>/systems/NAME/*.done            digests of what these two were made from
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ode_transformer.analysis.comparison.token_accuracy import TokenAccuracy
from ode_transformer.decoding.attention_maps import AttentionMap, attention_maps
from ode_transformer.decoding.binarised import Split
from ode_transformer.decoding.teacher_forcing import teacher_forced
from ode_transformer.decoding.translate import best, load_hub, target_line
from ode_transformer.support.console import ProgressMeter, print_progress
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import content_digest, write_text
from ode_transformer.support.jobs import Jobs
from ode_transformer.support.lines import read_lines


@dataclass(frozen=True)
class ShownMap:
    """An attention map of one sentence as it is drawn.

    :param line: of the sentence in its split, from 1 on
    :param title: of the map
    :param axes: of lines and columns
    :param tokens: of lines and columns
    :param weights: [lines, columns]
    :param query: the token whose attention it is, where that is no line
    """

    line: int
    title: str
    axes: tuple[str, str]
    tokens: tuple[list[str], list[str]]
    weights: Tensor
    query: str | None = None


class System:
    """A checkpoint on the first sentences of a split.

    :param args: the command line
    :raises UserError: the checkpoint or the data cannot be read, or a sentence is longer than the model takes
    """

    def __init__(self, args: argparse.Namespace, name: str, path: Path) -> None:
        self.args, self.name = args, name
        self.hub = load_hub(path, args.data, args.source_lang, args.target_lang, args.batch_size, cpu=args.cpu)
        self.model, self.task = self.hub.models[0], self.hub.task
        self.split = Split(self.model, self.task, args.data, args.split, path)
        self.lines = range(len(self.split.too_long[: args.sentences]))
        for number in self.split.too_long[: args.sentences].nonzero()[0]:
            raise UserError(f"{args.data}: sentence {number + 1} of {args.split} is longer than {path} takes")
        if wrong := [line for line in args.maps if line > len(self.lines)]:
            raise UserError(f"--maps {wrong[0]}: the sentences are 1 to {len(self.lines)}")
        self.directory = args.output / "systems" / name
        self.directory.mkdir(parents=True, exist_ok=True)
        languages = self.task.cfg.source_lang, self.task.cfg.target_lang
        dictionaries = [args.data / f"dict.{language}.txt" for language in languages]
        self.content = content_digest([path, *dictionaries, *sorted(args.data.glob(f"{args.split}.*-*.*"))])
        self.request = [self.content, languages, len(self.lines)]

    def _jobs(self) -> Jobs:
        return Jobs(self.directory, Jobs(self.directory).digest_of(self.request), print_progress)

    def references(self) -> list[str]:
        return [
            target_line(self.task, row["target"], self.args.remove_bpe, escape_unk=True)
            for row in self.split.rows(self.lines)
        ]

    def source_lengths(self) -> list[int]:
        """In tokens as the model reads them, without the end symbol."""
        return [int(size) - 1 for size in self.split.dataset.src_sizes[: len(self.lines)]]

    def hypotheses(self) -> list[str]:
        """The best translation of each sentence; searched for unless that has been done."""
        args, result = self.args, self.directory / "hypotheses.txt"
        search = {name: getattr(args, name) for name in ("beam", "lenpen", "max_len_b")}

        def make() -> None:
            sources = [row["source"] for row in self.split.rows(self.lines)]
            by_length = sorted(self.lines, key=lambda number: len(sources[number]))  # so there is little padding
            meter = ProgressMeter("sentences decoded", len(sources))
            lines = [""] * len(sources)
            found = best(self.hub, [sources[number] for number in by_length], 4 * args.batch_size, **search)
            for done, (number, tokens) in enumerate(zip(by_length, found, strict=True), start=1):
                lines[number] = f"{target_line(self.task, tokens, args.remove_bpe)}\n"
                meter.update(done)
            write_text(result, "".join(lines))

        self._jobs().run("decode", [search, args.batch_size, args.remove_bpe], result, make)
        return read_lines(result)

    def accuracy(self) -> TokenAccuracy:
        """Counts of right tokens under teacher forcing; made unless that has been done."""
        result = self.directory / "accuracy.json"

        def make() -> None:
            counted, meter = TokenAccuracy(), ProgressMeter("sentences forced", len(self.lines))
            batches = map(self.split.sample, self.split.batches(len(self.lines), self.args.max_tokens))
            done = 0
            for forced in teacher_forced(self.model, batches, self.task.target_dictionary.pad()):
                counted.add(forced)
                done += len(forced.numbers)
                meter.update(done)
            write_text(result, json.dumps(asdict(counted)))

        self._jobs().run("accuracy", self.args.max_tokens, result, make)
        read = json.loads(result.read_text(encoding="utf-8"))
        counts = {name: {int(k): tuple(pair) for k, pair in read[name].items()} for name in ("positions", "tokens")}
        return TokenAccuracy(**counts, loss=read["loss"])

    def maps(self) -> list[ShownMap]:
        """All maps of the sentences that are asked for; of three axes, those of the last token before the end."""
        shown = []
        for line in self.args.maps:
            (row,) = self.split.rows([line - 1])
            sides = {"source": self.task.source_dictionary, "target": self.task.target_dictionary}
            tokens = {side: [dictionary[int(t)] for t in row[side]] for side, dictionary in sides.items()}
            tokens["prefix"] = tokens["target"][-1:] + tokens["target"][:-1]
            for title, found in attention_maps(self.model, self.split.dataset.collater([row])).items():
                shown.append(_shown(line, title, found, tokens))
        return shown

    def frequencies(self) -> list[int] | None:
        """How often each token of the target's dictionary is in the training data; None if these are not there."""
        files = sorted(self.args.data.glob(f"train.*-*.{self.task.cfg.target_lang}.*"))
        if not files:
            return None
        result = self.args.output / "frequencies.json"

        def make() -> None:
            train = Split(self.model, self.task, self.args.data, "train", self.args.data)
            counts = np.zeros(len(self.task.target_dictionary), dtype=np.int64)
            meter = ProgressMeter("training sentences counted", len(train.lengths))
            for start in range(0, len(train.lengths), 10_000):
                part = range(start, min(start + 10_000, len(train.lengths)))
                tokens = torch.cat([row["target"] for row in train.rows(part)])
                counts += np.bincount(tokens.numpy(), minlength=len(counts))
                meter.update(part.stop)
            write_text(result, json.dumps(counts.tolist()))

        Jobs(self.args.output, report=print_progress).run("frequencies", content_digest(files), result, make)
        return list(json.loads(result.read_text(encoding="utf-8")))


def _shown(line: int, title: str, found: AttentionMap, tokens: Mapping[str, Sequence[str]]) -> ShownMap:
    query, name = 0, None
    if len(found.axes) == 3:
        asked = tokens[found.axes[1]]
        query = max(0, len(asked) - 2)
        name = asked[query]
    (first, last), weights = found.flat(query)
    return ShownMap(line, title, (first, last), (list(tokens[first]), list(tokens[last])), weights, name)
