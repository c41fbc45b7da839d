"""Test of two systems of a study over sentences and seeds (``metrics.significance``)."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path

from ode_transformer.metrics.metric import Settings
from ode_transformer.metrics.registry import METRICS
from ode_transformer.metrics.significance import SAMPLES, SentenceStatistics, paired_bootstrap
from ode_transformer.studies.results import StudyResults, StudyTable
from ode_transformer.support.generate_log import read_generate_log

SEED = 1
NOTE = (
    "Difference to the first system; sentences and seeds are drawn together, "
    f"{SAMPLES:,} times. With few seeds the interval is too narrow rather than too wide."
)


def paired_table(results: StudyResults, metric: str, split: str) -> StudyTable | None:
    """Compare every system with the first one at the same value of the axis, over sentences and seeds.

    :param split: the test set, whose logs of fairseq-generate are read
    :return: None if no system has a seed in common with the first one
    :raises UserError: a log is broken
    """
    axis = [results.study.axis.name] if results.study.axis else []
    statistics = cache(partial(_read_statistics, metric, split))  # the first system's are compared with all others
    rows = []
    for cell in results.cells:
        baseline = results.baseline(cell)
        by_seed = [{run.seed: run.folder for run in results.runs_of(of) if run.folder} for of in (cell, baseline)]
        seeds = sorted(by_seed[0].keys() & by_seed[1].keys())
        if cell == baseline or not seeds:
            continue
        system, first = ([statistics(folders[seed]) for seed in seeds] for folders in by_seed)
        name = [cell.system.name, *([str(cell.value)] if axis else [])]
        rows.append([*name, str(len(seeds)), str(paired_bootstrap([first, system], SAMPLES, SEED)[1].difference)])
    if not rows:
        return None
    heads = ["system", *axis, "seeds", f"{metric}: difference [95%], p"]
    return StudyTable("Paired test over sentences and seeds", [heads, *rows], NOTE)


def _read_statistics(metric: str, split: str, folder: Path) -> SentenceStatistics:
    lines = read_generate_log(folder / f"generate.{split}.log")
    settings = Settings([line.reference or "" for line in lines], tokenize="none")
    return METRICS[metric].sentence_statistics([line.hypothesis for line in lines], settings)
