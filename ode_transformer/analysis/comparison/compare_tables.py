"""The tables of ``ode-transformer compare``, from what its systems did."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ode_transformer.analysis.comparison.bucket_tables import Buckets, Table
from ode_transformer.analysis.comparison.token_accuracy import Counts, TokenAccuracy, percent
from ode_transformer.metrics.metric import Settings
from ode_transformer.metrics.translation_scores import bleu, length_ratio

FREQUENCIES = (0, 9, 99, 999, 9_999, 99_999, 999_999)  # ends of the buckets

Measure = Callable[[Sequence[str], Sequence[str]], float | None]  # of hypotheses and references


@dataclass(frozen=True)
class TestSet:
    """What the systems are measured on.

    :param name: of the split
    :param lengths: of the sources, in tokens as the models read them, without the end symbol
    :param frequencies: how often each token of the target's dictionary is in the training data; None if not known
    """

    name: str
    references: Sequence[str]
    lengths: Sequence[int]
    frequencies: Sequence[int] | None


@dataclass(frozen=True)
class Results:
    """What one system did there."""

    hypotheses: Sequence[str]
    accuracy: TokenAccuracy


def by_source_length(
    measure: Measure, hypotheses: Sequence[str], test: TestSet, buckets: Buckets
) -> list[float | None]:
    """A measure of the sentences in each bucket of source lengths; None where there are none."""
    parts: list[list[tuple[str, str]]] = [[] for _ in range(len(buckets))]
    for hypothesis, reference, length in zip(hypotheses, test.references, test.lengths, strict=True):
        parts[buckets.index(length)].append((hypothesis, reference))
    return [measure([h for h, _ in part], [r for _, r in part]) if part else None for part in parts]


def tables(
    systems: dict[str, Results], test: TestSet, ends: Sequence[int], tokenize: str = "13a", lowercase: bool = False
) -> list[Table]:
    """The summary, a line for each system, and the tables over buckets, a column for each.

    :param ends: of the buckets of source lengths and target positions
    :param tokenize: flavour of BLEU
    """

    def bleu_of(hypotheses: Sequence[str], references: Sequence[str]) -> float | None:
        return bleu(hypotheses, Settings(references, tokenize=tokenize, lowercase=lowercase))[0].value

    def ratio_of(hypotheses: Sequence[str], references: Sequence[str]) -> float | None:
        return length_ratio(hypotheses, Settings(references, tokenize=tokenize))

    ratio = {name: ratio_of(system.hypotheses, test.references) for name, system in systems.items()}
    overall = [system.accuracy.overall() for system in systems.values()]
    losses = [system.accuracy.loss / system.accuracy.overall()[1] for system in systems.values()]
    columns: dict[str, list[float | None]] = {
        "BLEU": [bleu_of(system.hypotheses, test.references) for system in systems.values()],
        "length ratio": list(ratio.values()),
        "accuracy (%)": [percent(counts) for counts in overall],
        "-log p": list(losses),
    }
    title = f"{len(test.references):,} sentences of {test.name}; -log p in nats per token"
    made = [
        Table("summary", list(systems), "system", title, columns),
        Table("length_ratio", [test.name], "test set", "length ratio", {name: [r] for name, r in ratio.items()}),
    ]

    lengths = Buckets(tuple(ends))
    sentences = [0] * len(lengths)
    for length in test.lengths:
        sentences[lengths.index(length)] += 1
    for name, value, measure in (("bleu", "BLEU", bleu_of), ("length_ratio", "length ratio", ratio_of)):
        columns = {n: by_source_length(measure, s.hypotheses, test, lengths) for n, s in systems.items()}
        title, rows = "source length (tokens)", lengths.names()
        made.append(Table(f"{name}_by_length", rows, title, value, columns, sentences, "sentences"))

    counts = {name: system.accuracy.by_position(lengths) for name, system in systems.items()}
    made.append(_accuracy("position", "target position", lengths, counts))
    if (known := test.frequencies) is not None:
        rare = Buckets(tuple(end for end in FREQUENCIES if end < max(known)), start=0)
        counts = {name: system.accuracy.by_frequency(known, rare) for name, system in systems.items()}
        made.append(_accuracy("frequency", "frequency in the training data", rare, counts))
    return made


def _accuracy(kind: str, title: str, buckets: Buckets, counts: dict[str, list[Counts]]) -> Table:
    columns = {name: [percent(pair) for pair in pairs] for name, pairs in counts.items()}
    tokens = [total for _, total in next(iter(counts.values()))]  # the same for all systems
    return Table(f"accuracy_by_{kind}", buckets.names(), title, "accuracy (%)", columns, tokens, "tokens")
