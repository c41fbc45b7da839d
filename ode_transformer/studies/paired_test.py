"""Test of two systems of a study over sentences and seeds (``metrics.significance``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

from ode_transformer.metrics.registry import METRICS
from ode_transformer.metrics.score_command import parse_recorded, read_systems
from ode_transformer.metrics.significance import SAMPLES, SentenceStatistics, paired_bootstrap
from ode_transformer.recipes.recipe import Scoring
from ode_transformer.studies.results import StudyResults, StudyTable
from ode_transformer.studies.study_runs import StudyRuns

SEED = 1
NOTE = (
    "Difference to the first system, of the seeds that both have. The interval contains the chance of sentences, by "
    f"{SAMPLES:,} draws, and, of several seeds, the chance of seeds, by Welch's t."
)
StatisticsReader = Callable[[Path], SentenceStatistics]  # of a run's folder


def paired_table(results: StudyResults, statistics: Mapping[str, StatisticsReader]) -> StudyTable | None:
    """Compare every system with the first one at the same value of the axis, over sentences and seeds.

    :param statistics: of each score of the test set
    :return: None if no system has a seed in common with the first one, or there is no such score
    :raises UserError: a log is broken
    """
    readers = [cache(read) for read in statistics.values()]  # the first system's are compared with all others
    rows = []
    for cell in results.cells:
        baseline = results.baseline(cell)
        by_seed = [{run.seed: run.folder for run in results.runs_of(of) if run.folder} for of in (cell, baseline)]
        seeds = sorted(by_seed[0].keys() & by_seed[1].keys())
        if cell == baseline or not seeds:
            continue
        row = [*cell.key_texts, str(len(seeds))]
        for read in readers:
            system, first = ([read(folders[seed]) for seed in seeds] for folders in by_seed)
            row.append(str(paired_bootstrap([first, system], SAMPLES, SEED)[1].difference))
        rows.append(row)
    if not rows or not statistics:
        return None
    heads = [*results.study.key_titles, "seeds", *(f"{title}: difference [95%], p" for title in statistics)]
    return StudyTable("Paired test over sentences and seeds", [heads, *rows], NOTE)


def sentence_readers(runs: StudyRuns) -> dict[str, StatisticsReader]:
    """Return, for each score of the first test set that follows from sentences, what reads them from a run's folder."""
    recipe = runs.cell_recipe(runs.cells[0])  # all systems are scored as the baseline
    split = next((split for split in recipe.sets if split != "valid"), None)
    if split is None or not runs.data.parallel:
        return {}
    experiments = {experiment.folder: experiment for _, experiment, _ in runs.complete_runs}

    def reader(scoring: Scoring) -> StatisticsReader:
        return lambda folder: read_statistics(experiments[folder].score_command(scoring, split))

    return {
        recipe.score_title(scoring.names[0], split): reader(scoring)
        for scoring in recipe.score
        if METRICS[scoring.metric].statistics
    }


def read_statistics(score_command: Sequence[object]) -> SentenceStatistics:
    """Return the statistics of the sentences that a command ``ode-transformer score`` of one metric scores.

    :raises UserError: a file is missing or broken
    """
    args = parse_recorded(score_command)
    (hypotheses, settings), (metric,) = read_systems(args)[0], args.metric
    return METRICS[metric].sentence_statistics(hypotheses, settings)
