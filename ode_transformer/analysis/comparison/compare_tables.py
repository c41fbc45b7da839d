"""Tables of ``ode-transformer analyse outputs``, computed from the results of its systems."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ode_transformer.analysis.comparison.bucket_tables import Buckets, BucketTable
from ode_transformer.analysis.comparison.token_accuracy import Counts, TokenAccuracy, percent
from ode_transformer.metrics.metric import Settings
from ode_transformer.metrics.translation_scores import bleu, length_ratio

FREQUENCIES = (0, 9, 99, 999, 9_999, 99_999, 999_999)  # ends of the buckets

Measure = Callable[[Sequence[str], Sequence[str]], float | None]  # of hypotheses and references


@dataclass(frozen=True)
class TestSet:
    """The test set of a comparison.

    :param name: name of the split
    :param lengths: lengths of the sources in tokens as the models read them, without the end symbol
    :param frequencies: frequency of each token of the target's dictionary in the training data; None if unknown
    """

    name: str
    references: Sequence[str]
    lengths: Sequence[int]
    frequencies: Sequence[int] | None


@dataclass(frozen=True)
class SystemResults:
    """Translations of a test set by one system, and the accuracy of its tokens there."""

    hypotheses: Sequence[str]
    accuracy: TokenAccuracy


def by_source_length(
    measure: Measure, hypotheses: Sequence[str], test: TestSet, buckets: Buckets
) -> list[float | None]:
    """Measure the sentences of each bucket of source lengths; None for an empty bucket."""
    pairs_by_bucket: list[list[tuple[str, str]]] = [[] for _ in range(len(buckets))]
    for hypothesis, reference, length in zip(hypotheses, test.references, test.lengths, strict=True):
        pairs_by_bucket[buckets.index(length)].append((hypothesis, reference))
    return [measure([h for h, _ in pairs], [r for _, r in pairs]) if pairs else None for pairs in pairs_by_bucket]


def comparison_tables(
    systems: dict[str, SystemResults],
    test: TestSet,
    ends: Sequence[int],
    tokenize: str = "13a",
    lowercase: bool = False,
) -> list[BucketTable]:
    """Return the summary, with a row for each system, and the tables over buckets, with a column for each.

    :param ends: ends of the buckets of source lengths and target positions
    :param tokenize: flavour of BLEU
    """

    def bleu_of(hypotheses: Sequence[str], references: Sequence[str]) -> float | None:
        return bleu(hypotheses, Settings(references, tokenize=tokenize, lowercase=lowercase))[0].value

    def ratio_of(hypotheses: Sequence[str], references: Sequence[str]) -> float | None:
        return length_ratio(hypotheses, Settings(references, tokenize=tokenize))

    ratios = {name: ratio_of(system.hypotheses, test.references) for name, system in systems.items()}
    overall_counts = [system.accuracy.overall() for system in systems.values()]
    losses = [system.accuracy.loss / system.accuracy.overall()[1] for system in systems.values()]
    columns: dict[str, list[float | None]] = {
        "BLEU": [bleu_of(system.hypotheses, test.references) for system in systems.values()],
        "length ratio": list(ratios.values()),
        "accuracy (%)": [percent(counts) for counts in overall_counts],
        "-log p": list(losses),
    }
    title = f"{len(test.references):,} sentences of {test.name}; -log p in nats per token"
    ratio_columns = {name: [ratio] for name, ratio in ratios.items()}
    tables = [
        BucketTable("summary", list(systems), "system", title, columns),
        BucketTable("length_ratio", [test.name], "test set", "length ratio", ratio_columns),
    ]

    lengths = Buckets(tuple(ends))
    sentences = [0] * len(lengths)
    for length in test.lengths:
        sentences[lengths.index(length)] += 1
    for name, value_title, measure in (("bleu", "BLEU", bleu_of), ("length_ratio", "length ratio", ratio_of)):
        columns = {n: by_source_length(measure, s.hypotheses, test, lengths) for n, s in systems.items()}
        row_title, rows = "source length (tokens)", lengths.names()
        tables.append(BucketTable(f"{name}_by_length", rows, row_title, value_title, columns, sentences, "sentences"))

    counts = {name: system.accuracy.by_position(lengths) for name, system in systems.items()}
    tables.append(_accuracy_table("position", "target position", lengths, counts))
    if test.frequencies is not None:
        frequencies = test.frequencies
        buckets = Buckets(tuple(end for end in FREQUENCIES if end < max(frequencies)), start=0)
        counts = {name: system.accuracy.by_frequency(frequencies, buckets) for name, system in systems.items()}
        tables.append(_accuracy_table("frequency", "frequency in the training data", buckets, counts))
    return tables


def _accuracy_table(kind: str, title: str, buckets: Buckets, counts: dict[str, list[Counts]]) -> BucketTable:
    columns = {name: [percent(pair) for pair in pairs] for name, pairs in counts.items()}
    tokens = [total for _, total in next(iter(counts.values()))]  # the same for all systems
    return BucketTable(f"accuracy_by_{kind}", buckets.names(), title, "accuracy (%)", columns, tokens, "tokens")
