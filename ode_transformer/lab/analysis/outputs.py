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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from ode_transformer.decoding.attention_maps import axis_tokens
from ode_transformer.decoding.binarised import Split
from ode_transformer.decoding.teacher_forcing import predict_tokens
from ode_transformer.lab.analysis.bucket_tables import Buckets, BucketTable
from ode_transformer.lab.analysis.one_sentence import sentence_maps, write_maps
from ode_transformer.lab.analysis.plots import new_figure
from ode_transformer.lab.analysis.systems import MAX_TOKENS, Translator, named_systems
from ode_transformer.lab.metrics.metric import Lines, Settings
from ode_transformer.lab.metrics.scripts import default_tokenizer
from ode_transformer.lab.metrics.translation_scores import bleu, length_ratio
from ode_transformer.support.arguments import check_within
from ode_transformer.support.console import print_progress, print_text, track
from ode_transformer.support.files import file_name, write_text
from ode_transformer.support.jobs import Jobs
from ode_transformer.support.lines import read_lines

FREQUENCIES = (0, 9, 99, 999, 9_999, 99_999, 999_999)  # ends of the buckets

Measure = Callable[[Lines, Settings], float | None]  # of hypotheses


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
    for forced in predict_tokens(system.model, batches, system.task.target_dictionary.pad()):
        positions = torch.arange(1, forced.target.size(1) + 1).expand_as(forced.target)
        values = positions, forced.target, forced.predicted.eq(forced.target), forced.loss.double()
        columns.append([each[forced.real].numpy() for each in values])
    return TokenAccuracy(*map(np.concatenate, zip(*columns, strict=True)))


def frequencies(system: Translator, data: Path) -> np.ndarray | None:
    """Return the frequency of each token of the target's dictionary in the training data; None without these."""
    if not any(data.glob(f"train.*-*.{system.task.cfg.target_lang}.*")):
        print_progress(f"{data}: no training data in it, so no accuracy by frequency")
        return None
    train = Split(system.model, system.task, data, "train", data)
    counts = np.zeros(len(system.task.target_dictionary), dtype=np.int64)
    for number in track(range(len(train.lengths)), "training sentences counted"):
        np.add.at(counts, train.dataset[number]["target"].numpy(), 1)
    return counts


def corpus_bleu(hypotheses: Lines, settings: Settings) -> float:
    """Compute BLEU."""
    return bleu(hypotheses, settings)[0].value


def by_source_length(measure: Measure, hypotheses: Lines, test: TestSet, buckets: Buckets) -> list[float | None]:
    """Measure the sentences of each bucket of source lengths; None for an empty bucket."""
    indices, texts = buckets.indices(test.lengths), (test.settings.references or (), *test.settings.more_references)
    values: list[float | None] = []
    for index in range(len(buckets.ends) + 1):
        numbers = np.flatnonzero(indices == index).tolist()
        chosen, first, *further = ([lines[number] for number in numbers] for lines in (hypotheses, *texts))
        settings = replace(test.settings, references=first, more_references=tuple(further))
        values.append(measure(chosen, settings) if numbers else None)
    return values


def accuracy_table(
    kind: str, title: str, buckets: Buckets, accuracies: dict[str, TokenAccuracy], numbers: np.ndarray
) -> BucketTable:
    """Return the accuracy of each system in per cent over buckets of a quantity of the tokens; None in empty ones."""
    counts = list(map(int, buckets.totals(numbers)))
    columns: dict[str, list[float | None]] = {}
    for name, accuracy in accuracies.items():
        pairs = zip(buckets.totals(numbers, accuracy.right), counts, strict=True)
        columns[name] = [100 * right / total if total else None for right, total in pairs]
    return BucketTable(f"accuracy_by_{kind}", buckets.names(), title, "accuracy (%)", columns, counts, "tokens")


def comparison_tables(
    translations: dict[str, list[str]], accuracies: dict[str, TokenAccuracy], test: TestSet, ends: Sequence[int]
) -> list[BucketTable]:
    """Return the summary, with a row for each system, and the tables over buckets, with a column for each."""
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
    lengths = Buckets(tuple(ends))
    sentences = list(map(int, lengths.totals(test.lengths)))
    measures: dict[str, Measure] = {"BLEU": corpus_bleu, "length ratio": length_ratio}
    for value_title, measure in measures.items():
        columns = {name: by_source_length(measure, texts, test, lengths) for name, texts in translations.items()}
        name, row_title = f"{value_title} by length".lower().replace(" ", "_"), "source length (tokens)"
        tables.append(BucketTable(name, lengths.names(), row_title, value_title, columns, sentences, "sentences"))
    first = next(iter(accuracies.values()))  # the tokens are the same for all systems
    tables.append(accuracy_table("position", "target position", lengths, accuracies, first.positions))
    if test.frequencies is not None:
        buckets = Buckets(tuple(end for end in FREQUENCIES if end < test.frequencies.max()), start=0)
        title, numbers = "frequency in the training data", test.frequencies[first.tokens]
        tables.append(accuracy_table("frequency", title, buckets, accuracies, numbers))
    return tables


def write_tables(tables: Sequence[BucketTable], folder: Path, title: str) -> None:
    """Write a CSV file and a plot of each table, and print and write all as Markdown."""
    for table in tables:
        write_text(folder / f"{table.name}.csv", table.csv())
        if table.name != "summary":
            table.draw(folder / f"{table.name}.png", title)
    text = "\n".join(table.markdown() for table in tables)
    write_text(folder / "tables.md", text)
    print_text(text, end="")


def run(args: argparse.Namespace) -> int:
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
        if test is None:
            lengths = system.split.dataset.src_sizes[: len(system.numbers)] - 1
            references = system.references()
            further = tuple(read_lines(path)[: len(lengths)] for path in args.more_references)
            tokenize = args.tokenize or default_tokenizer(references)  # the same for all buckets
            settings = Settings(references, further, tokenize, args.lowercase)
            test = TestSet(args.split, settings, lengths, frequencies(system, args.data))
        hypotheses = args.output / "systems" / file_name(name) / "hypotheses.txt"
        hypotheses.parent.mkdir(parents=True, exist_ok=True)
        jobs = Jobs(hypotheses.parent, system.model_digest, print_progress)
        jobs.run("decode", system.request, hypotheses, partial(system.write_translations, hypotheses))
        translations[name] = read_lines(hypotheses)
        accuracies[name] = token_accuracy(system)
        digests[name] = system.model_digest
        for line in args.maps:
            (row,) = system.split.rows([line - 1])
            tokens, sample = axis_tokens(row, system.split.dictionaries), system.split.dataset.collater([row])
            write_maps(sentence_maps(system.model, sample, tokens), name, line, args.output / "attention")
    assert test is not None  # argparse asks for one system at least
    tables = comparison_tables(translations, accuracies, test, args.lengths)
    record = {
        "command": shlex.join(["ode-transformer", *args.words]),
        "signature": bleu(settings.references or [], settings)[0].signature,
        "systems": {name: {"path": str(path), "content": digests[name]} for name, path in paths.items()},
        "tables": {table.name: vars(table) for table in tables},
    }
    write_text(args.output / "results.json", json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    title = f"{args.data.resolve().name}, {len(test.lengths):,} sentences of {test.name}"
    write_tables(tables, args.output, title)
    return 0
