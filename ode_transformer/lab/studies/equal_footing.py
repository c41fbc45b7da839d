"""Systems on equal footing: validation perplexity after equal updates, after equal compute, and by parameters.

A scheme of s stages costs more for each update, and a deeper model has more parameters, so "which is better?" is three
questions. The first two have their answers in the validations of the same runs:

    compute of a run after u updates = u · operations of a forward pass, relative to the first system

For equal compute, each run is read at its last validation within the compute of the cheapest system's whole training.
The schedule of the learning rate is that of the whole training, which favours the systems that are read early.
"""

from collections.abc import Iterator
from pathlib import Path
from statistics import mean

import numpy as np

from ode_transformer.lab.analysis.plots import new_figure, plain_label, save_figure
from ode_transformer.lab.metrics.significance import mean_text
from ode_transformer.lab.studies.results import StudyResults, StudyRun
from ode_transformer.support.tables import csv_text

EARLY = 0.25  # the part of a training whose perplexities are so high that no other difference could be seen beside them
NOTE = (
    "Validation perplexity, mean ± standard deviation over seeds. Equal updates: after the whole training. Equal "
    "compute: at the last validation within the compute of the cheapest system, and the updates until there. "
    "Parameters and compute are multiples of the first system's; rows of the same parameters answer the third question."
)


def validation_csv(results: StudyResults) -> str:
    """Return a line for each validation of each run."""
    lines: list[list[object]] = [[*results.study.key_titles, "seed", "parameters", "updates", "compute", "perplexity"]]
    for run in results.runs:
        for updates, perplexity in run.validations:
            compute = round(updates * results.compute(run), 1)
            lines.append([*run.row.key_texts, run.seed, run.parameters, updates, compute, round(perplexity, 3)])
    return csv_text(lines)


def table_rows(results: StudyResults) -> list[list[str]]:
    """Return the rows of a table, the heads first."""
    budget = min(run.validations[-1][0] * results.compute(run) for run in results.runs if run.validations)
    columns = ["parameters", "compute", "seeds", "equal updates", "equal compute", "updates until there"]
    lines = [[*results.study.key_titles, *columns]]
    for row in results.rows:
        runs = [run for run in results.runs_of(row) if run.validations]
        if not runs:
            continue
        first, cost = results.first_system, results.compute(runs[0])
        within = [[point for point in run.validations if point[0] * cost <= budget * (1 + 1e-9)] for run in runs]
        early = [points[-1] for points in within if points]
        lines.append(
            [
                *row.key_texts,
                *(f"{runs[0].parameters / first.parameters:.2f}", f"{cost:.2f}", str(len(runs))),
                mean_text([run.validations[-1][1] for run in runs]),
                mean_text([perplexity for _, perplexity in early]),
                f"{mean(updates for updates, _ in early):,.0f}" if early else "",
            ]
        )
    return lines


def draw_validations(results: StudyResults, path: Path) -> None:
    """Draw validation perplexity by updates, by compute and, at the end, by parameters: a PNG of three panels.

    The heights are those after the first quarter of each training.
    """
    runs_of_rows = {str(row): results.runs_of(row) for row in results.rows}
    by_row = {name: runs for name, runs in runs_of_rows.items() if any(run.validations for run in runs)}
    curves = {name: list(mean_curve(runs)) for name, runs in by_row.items()}
    figure = new_figure(14.0, 4.5)
    panels = figure.subplots(1, 3, sharey=True)
    for name, runs in by_row.items():
        cost = results.compute(runs[0])
        updates, perplexities = zip(*curves[name], strict=True)
        (line,) = panels[0].plot(updates, perplexities, label=plain_label(name))
        panels[1].plot([at * cost for at in updates], perplexities, color=line.get_color())
        panels[2].plot(runs[0].parameters, perplexities[-1], "o", color=line.get_color())
    for axes, label in zip(panels, ("updates", "compute [updates of the first system]", "parameters"), strict=True):
        axes.set_xlabel(label)
        axes.grid(alpha=0.3)
    panels[2].locator_params(axis="x", nbins=4)  # long numbers
    panels[0].set_ylabel("validation perplexity")
    late = [perplexity for curve in curves.values() for updates, perplexity in curve if updates >= EARLY * curve[-1][0]]
    panels[0].set_ylim(0.97 * min(late), 1.03 * max(late))
    figure.legend(loc="outside right upper", fontsize="small")
    save_figure(figure, path)


def mean_curve(runs: list[StudyRun]) -> Iterator[tuple[int, float]]:
    """Yield the mean over seeds after each validation, up to the end of the shortest run.

    A run's perplexity between two of its validations is interpolated: where a validation follows each epoch, the
    updates that FP16 skips move those of one seed against those of another.
    """
    curves = [tuple(zip(*sorted(dict(run.validations).items()), strict=True)) for run in runs if run.validations]
    start = max(updates[0] for updates, _ in curves)
    end = max(start, min(updates[-1] for updates, _ in curves))
    for at in sorted({at for updates, _ in curves for at in updates if start <= at <= end}):
        yield at, mean(float(np.interp(at, updates, perplexities)) for updates, perplexities in curves)
