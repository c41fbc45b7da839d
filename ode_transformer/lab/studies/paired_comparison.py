"""Test of two systems of a study over the sentences of its test set (``metrics.significance``)."""

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ode_transformer.lab.metrics.score_command import read_statistics
from ode_transformer.lab.metrics.significance import SAMPLES, PairedDifference, drawn_scores, paired_difference
from ode_transformer.lab.studies.results import StudyResults, StudyTable
from ode_transformer.support.tables import csv_text

SEED = 1
NOTE = (
    "Difference to the first system, and to the systems it is measured against, of the seeds that both have. Interval "
    f"and p contain the chance of sentences alone, by {SAMPLES:,} draws; the tables above contain that of seeds."
)


# Texts of ``StudyResults.pair_titles`` and the number of seeds that both systems have; differences by title of score
PairedTest = tuple[list[str], dict[str, PairedDifference]]


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
        yield [*results.pair_texts(*pair), str(len(seeds))], differences


def paired_table(results: StudyResults, tests: Sequence[PairedTest]) -> StudyTable:
    titles = [f"{title}: difference [95%], p" for title in tests[0][1]]
    lines = [[*texts, *map(str, differences.values())] for texts, differences in tests]
    return StudyTable("Paired test over sentences", [[*results.pair_titles, "seeds", *titles], *lines], NOTE)


def paired_csv(results: StudyResults, tests: Sequence[PairedTest]) -> str:
    """Return a line for each test and score as CSV."""
    lines = [[*results.pair_titles, "seeds", "score", "difference", "low", "high", "p"]]
    for texts, differences in tests:
        for title, difference in differences.items():
            numbers = (difference.value, *difference.interval, difference.p_value)
            lines.append([*texts, title, *(f"{number:.4f}" for number in numbers)])
    return csv_text(lines)
