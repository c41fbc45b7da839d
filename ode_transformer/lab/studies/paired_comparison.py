"""Test of two systems of a study over the sentences of its test set (``metrics.significance``)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ode_transformer.lab.metrics.score_command import read_statistics
from ode_transformer.lab.metrics.significance import (
    SAMPLES,
    PairedDifference,
    drawn_scores,
    paired_difference,
)
from ode_transformer.lab.studies.results import StudyResults, StudyTable
from ode_transformer.support.tables import csv_text

SEED = 1
NOTE = (
    "Difference to the first system, and to the systems it is measured against, of the seeds that both have. Interval "
    f"and p contain the chance of sentences alone, by {SAMPLES:,} draws; the tables above contain that of seeds."
)


@dataclass(frozen=True)
class PairedTest:
    """Two systems compared over sentences.

    :param key: the texts of ``StudyResults.pair_titles``
    :param seeds: that both systems have
    :param differences: by title of the score
    """

    key: Sequence[str]
    seeds: int
    differences: Mapping[str, PairedDifference]


def paired_tests(results: StudyResults) -> Iterator[PairedTest]:
    """Compare every system with the first one, and with those of its ``against``, at the same value of the axis.

    Systems without a seed in common are left out, and all if no score follows from sentences.
    """
    commands = {run.folder: run.score_commands for run in results.runs}
    titles = next(iter(commands.values()), {})

    @cache  # a system stands in several comparisons
    def drawn(title: str, *folders: Path) -> NDArray[np.float64]:
        return drawn_scores([read_statistics(commands[folder][title]) for folder in folders], SAMPLES, SEED)

    references = [(row, results.baseline(row)) for row in results.rows]
    references += [(row, reference) for row, reference in results.pairs() if reference != results.baseline(row)]
    for pair in references:
        folders = [{run.seed: run.folder for run in results.runs_of(row) if run.folder} for row in pair]
        seeds = sorted(folders[0].keys() & folders[1].keys())
        if pair[0] == pair[1] or not seeds or not titles:
            continue
        differences = {
            title: paired_difference(*(drawn(title, *(of_row[seed] for seed in seeds)) for of_row in folders))
            for title in titles
        }
        yield PairedTest(results.pair_texts(*pair), len(seeds), differences)


def paired_table(results: StudyResults, tests: Sequence[PairedTest]) -> StudyTable:
    """Return a row for each test.

    :param tests: of these results, at least one
    """
    titles = [f"{title}: difference [95%], p" for title in tests[0].differences]
    lines = [[*test.key, str(test.seeds), *map(str, test.differences.values())] for test in tests]
    return StudyTable("Paired test over sentences", [[*results.pair_titles, "seeds", *titles], *lines], NOTE)


def paired_csv(results: StudyResults, tests: Sequence[PairedTest]) -> str:
    """Return a line for each test and score as CSV."""
    heads = [*results.pair_titles, "seeds", "score", "difference", "low", "high", "p"]
    lines = [
        [
            *test.key,
            test.seeds,
            title,
            *(f"{number:.4f}" for number in (difference.value, *difference.interval, difference.p_value)),
        ]
        for test in tests
        for title, difference in test.differences.items()
    ]
    return csv_text([heads, *lines])
