"""``ode-transformer analyse outputs``: translations of several systems (Reformer, Li et al. 2020, Figures 3-5).

    Figure 3    length of the translations / length of the references; BLEU by the length of the source
    Figure 4    accuracy of single tokens, by target position and by frequency in the training data
    Figure 5    attention maps

The output folder holds ``tables.md`` with all tables, ``results.json`` with all numbers, a CSV file and a plot for
each table, ``attention`` with a plot and the weights of each map, and ``systems/NAME/hypotheses.txt``.
"""

import argparse
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from ode_transformer.decoding.attention_maps import axis_tokens
from ode_transformer.decoding.binarised import Split
from ode_transformer.decoding.teacher_forcing import predict_tokens
from ode_transformer.lab.analysis.one_sentence import sentence_maps, write_maps
from ode_transformer.lab.analysis.plots import new_figure, plain_label, saved_panel
from ode_transformer.lab.analysis.systems import MAX_TOKENS, Translator
from ode_transformer.lab.metrics.metric import Lines, Settings
from ode_transformer.lab.metrics.translation_scores import bleu, default_tokenizer, length_ratio
from ode_transformer.support.arguments import check_within, named_systems
from ode_transformer.support.console import print_progress, print_text, track
from ode_transformer.support.files import file_name, write_text
from ode_transformer.support.jobs import Jobs
from ode_transformer.support.lines import read_lines
from ode_transformer.support.tables import csv_text, markdown_table

Measure = Callable[[Lines, Settings], float | None]  # of hypotheses


@dataclass(frozen=True)
class BucketTable:
    """A table with a row for each bucket (or system) and a column for each system (or measure).

    :param columns: name of a column -> a number for each row; None where there is nothing to measure
    :param counts: number of sentences or tokens behind each row, if ``count_title`` is set
    :param count_title: unit of the counts; None for a table without a column of counts
    """

    name: str
    rows: Sequence[str]
    row_title: str
    value_title: str
    columns: dict[str, list[float | None]]
    counts: Sequence[int] = ()
    count_title: str | None = None

    def _entries(self, missing: str, number_format: str) -> list[list[str]]:
        columns: dict[str, list[str]] = {self.row_title: list(self.rows)}
        if self.count_title is not None:
            columns[self.count_title] = list(map(str, self.counts))
        for name, values in self.columns.items():
            columns[name] = [missing if value is None else format(value, number_format) for value in values]
        return [list(columns), *map(list, zip(*columns.values(), strict=True))]

    def markdown(self) -> str:
        """Return title and table, with two decimals."""
        titles, *rows = self._entries("–", ".2f")
        return f"**{self.value_title}**\n\n{markdown_table(titles, rows)}\n"

    def csv(self) -> str:
        """Return the table with all digits; a field is empty where there is nothing to measure."""
        return csv_text(self._entries("", ""))

    def draw(self, path: Path, title: str) -> None:
        """Draw a curve for each column over the rows, which have their counts below; for a single row, bars."""
        with saved_panel(path, 6, 3.5) as axes:
            if len(self.rows) == 1:
                names = [plain_label(name) for name in self.columns]
                axes.bar(names, [column[0] or 0 for column in self.columns.values()], width=0.6)
            else:
                for name, column in self.columns.items():
                    points = {position: value for position, value in enumerate(column) if value is not None}
                    axes.plot(list(points), list(points.values()), marker="o", label=plain_label(name))
                labels = self.rows if self.count_title is None else map("{}\n({:,})".format, self.rows, self.counts)
                axes.set_xticks(range(len(self.rows)), list(labels))
                counted = "" if self.count_title is None else f" ({self.count_title} in brackets)"
                axes.set_xlabel(self.row_title + counted)
                axes.legend()
            axes.set_title(plain_label(title), fontsize="medium")
            axes.set_ylabel(self.value_title)
            axes.grid(axis="y", alpha=0.3)


@dataclass(frozen=True)
class Buckets:
    """Ranges of whole numbers, the last one open.

    :param ends: last number of each bucket but the open one, in rising order
    :param title: what the numbers are
    :param unit: what has such a number: sentences or tokens
    :param start: smallest possible number
    """

    ends: tuple[int, ...]
    title: str
    unit: str
    start: int = 1

    def indices(self, numbers: Any) -> np.ndarray:
        """Return the index of each number's bucket, from 0 on."""
        return np.searchsorted(self.ends, numbers)

    def names(self) -> list[str]:
        """Return the names ``1-10``, …, ``51+``."""
        starts = [self.start, *(end + 1 for end in self.ends)]
        closed = [str(end) if first == end else f"{first}-{end}" for first, end in zip(starts, self.ends, strict=False)]
        return [*closed, f"{starts[-1]}+"]

    def table(
        self, name: str, value_title: str, numbers: Any, measures: Mapping[str, Callable[[np.ndarray], float | None]]
    ) -> BucketTable:
        """Return a table with a column for each system, whose measure is given the indices of numbers in a bucket."""
        indices = self.indices(numbers)
        members = [np.flatnonzero(indices == index) for index in range(len(self.ends) + 1)]
        columns = {
            system: [measure(chosen) if len(chosen) else None for chosen in members]
            for system, measure in measures.items()
        }
        counts = list(map(len, members))
        return BucketTable(name, self.names(), self.title, value_title, columns, counts, self.unit)


class TokenAccuracy(NamedTuple):
    """The predictions of a system after the right target tokens (teacher forcing); end symbols are tokens, too.

    :param positions: target position of each token, from 1 on, [N]
    :param right: True where the model's most probable token is the right one, [N]
    :param loss: -log p of the right tokens in nats, [N]
    """

    positions: np.ndarray
    tokens: np.ndarray
    right: np.ndarray
    loss: np.ndarray

    def percent(self, tokens: np.ndarray) -> float:
        """Return the accuracy at the tokens of these indices in per cent."""
        return 100 * float(self.right[tokens].sum()) / len(tokens)


@dataclass(frozen=True)
class TestSet:
    """The test set of a comparison.

    :param settings: of BLEU, with one or several references
    :param lengths: lengths of the sources in tokens as the models read them, without the end symbol
    :param frequencies: frequency of each token of the target's dictionary in the training data; None if unknown
    """

    name: str
    settings: Settings
    lengths: Sequence[int]
    frequencies: np.ndarray | None


def token_accuracy(system: Translator) -> TokenAccuracy:
    """Predict the target tokens of a system's sentences."""
    batches = map(system.split.sample, track(system.split.batches(len(system.numbers), MAX_TOKENS), "batches forced"))
    columns: list[list[np.ndarray]] = []
    for forced in predict_tokens(system.model, batches, system.dictionary.pad()):
        positions = torch.arange(1, forced.target.size(1) + 1).expand_as(forced.target)
        values = positions, forced.target, forced.predicted.eq(forced.target), forced.loss.double()
        columns.append([each[forced.real].numpy() for each in values])
    return TokenAccuracy(*map(np.concatenate, zip(*columns, strict=True)))


def read_test_set(system: Translator, args: argparse.Namespace) -> TestSet:
    """Return the test set of a system, which is that of all."""
    lengths = (system.split.lengths_by_side[0, : len(system.numbers)] - 1).tolist()
    references = system.references()
    further = tuple(read_lines(path)[: len(lengths)] for path in args.more_references)
    tokenize = args.tokenize or default_tokenizer(references)  # the same for all buckets
    settings = Settings(references, further, tokenize, args.lowercase)
    return TestSet(args.split, settings, lengths, frequencies(system, args.data))


def frequencies(system: Translator, data: Path) -> np.ndarray | None:
    """Return the frequency of each token of the target's dictionary in the training data; None without these."""
    if not any(data.glob(f"train.*-*.{system.hub.languages[1]}.*")):
        print_progress(f"{data}: no training data in it, so no accuracy by frequency")
        return None
    train = Split(system.trained, data, "train")
    counts = np.zeros(len(system.dictionary), dtype=np.int64)
    for number in track(range(len(train.lengths)), "training sentences counted"):
        np.add.at(counts, train.rows([number])[0]["target"].numpy(), 1)
    return counts


def corpus_bleu(hypotheses: Lines, settings: Settings) -> float:
    return bleu(hypotheses, settings)[0].value


def measure_sentences(measure: Measure, hypotheses: Lines, settings: Settings, numbers: np.ndarray) -> float | None:
    """Measure the sentences of these numbers, from 0 on."""
    texts = hypotheses, settings.references or (), *settings.more_references
    chosen, first, *further = ([lines[number] for number in numbers.tolist()] for lines in texts)
    return measure(chosen, replace(settings, references=first, more_references=tuple(further)))


def comparison_tables(
    translations: dict[str, list[str]],
    accuracies: dict[str, TokenAccuracy],
    test: TestSet,
    ends: Sequence[int],
    frequencies: Sequence[int],
) -> list[BucketTable]:
    """Return the summary, with a row for each system, and the tables over buckets, with a column for each.

    :param ends: of the buckets of lengths and positions
    :param frequencies: ends of the buckets of frequencies; those that no token reaches are left out
    """
    ratios = {name: [length_ratio(hypotheses, test.settings)] for name, hypotheses in translations.items()}
    summary: dict[str, list[float | None]] = {
        "BLEU": [corpus_bleu(hypotheses, test.settings) for hypotheses in translations.values()],
        "length ratio": [ratio for (ratio,) in ratios.values()],
        "accuracy (%)": [100 * float(accuracy.right.mean()) for accuracy in accuracies.values()],
        "-log p": [float(accuracy.loss.mean()) for accuracy in accuracies.values()],
    }
    title = f"{len(test.lengths):,} sentences of {test.name}; -log p in nats per token"
    tables = [
        BucketTable("summary", list(translations), "system", title, summary),
        BucketTable("length_ratio", [test.name], "test set", "length ratio", ratios),
    ]
    lengths = Buckets(tuple(ends), "source length (tokens)", "sentences")
    measures: dict[str, Measure] = {"BLEU": corpus_bleu, "length ratio": length_ratio}
    for title, measure in measures.items():
        of_systems = {n: partial(measure_sentences, measure, t, test.settings) for n, t in translations.items()}
        name = f"{title} by length".lower().replace(" ", "_")
        tables.append(lengths.table(name, title, test.lengths, of_systems))
    first = next(iter(accuracies.values()))  # the tokens are the same for all systems
    accuracy = {name: each.percent for name, each in accuracies.items()}
    positions = Buckets(tuple(ends), "target position", "tokens")
    tables.append(positions.table("accuracy_by_position", "accuracy (%)", first.positions, accuracy))
    if test.frequencies is not None:
        reached = tuple(end for end in sorted(frequencies) if end < test.frequencies.max())
        buckets = Buckets(reached, "frequency in the training data", "tokens", start=0)
        numbers = test.frequencies[first.tokens]
        tables.append(buckets.table("accuracy_by_frequency", "accuracy (%)", numbers, accuracy))
    return tables


def run(args: argparse.Namespace) -> None:
    """Print the tables; write them, the numbers and the plots into the output folder."""
    paths = named_systems(args)
    new_figure(1, 1)  # a missing matplotlib is an error before the work, not after it
    translations: dict[str, list[str]] = {}
    accuracies: dict[str, TokenAccuracy] = {}
    digests: dict[str, str] = {}
    test: TestSet | None = None
    for name, path in paths.items():
        print_progress(f"{name}: {path}")
        system = Translator(args, path)
        check_within("--maps", args.maps, len(system.numbers))
        test = test or read_test_set(system, args)
        hypotheses = args.output / "systems" / file_name(name) / "hypotheses.txt"
        hypotheses.parent.mkdir(parents=True, exist_ok=True)
        jobs = Jobs(hypotheses.parent, system.model_digest, print_progress)
        jobs.run("decode", system.request, hypotheses, partial(system.write_translations, hypotheses))
        translations[name] = read_lines(hypotheses)
        accuracies[name] = token_accuracy(system)
        digests[name] = system.model_digest
        for line in args.maps:
            (row,) = system.split.rows([line - 1])
            tokens, sample = axis_tokens(row, system.split.dictionaries), system.split.sample([line - 1])
            write_maps(sentence_maps(system.model, sample, tokens), name, line, args.output / "attention")
    assert test is not None  # argparse asks for one system at least
    tables = comparison_tables(translations, accuracies, test, args.lengths, args.frequencies)
    record = {
        "command": shlex.join(["ode-transformer", *args.words]),
        "signature": bleu(test.settings.references or [], test.settings)[0].signature,
        "systems": {name: {"path": str(path), "content": digests[name]} for name, path in paths.items()},
        "tables": {table.name: vars(table) for table in tables},
    }
    write_text(args.output / "results.json", json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    title = f"{args.data.resolve().name}, {len(test.lengths):,} sentences of {test.name}"
    for table in tables:
        write_text(args.output / f"{table.name}.csv", table.csv())
        if table.name != "summary":
            table.draw(args.output / f"{table.name}.png", title)
    text = "\n".join(table.markdown() for table in tables)
    write_text(args.output / "tables.md", text)
    print_text(text, end="")
