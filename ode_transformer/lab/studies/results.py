"""Results of a study: a line for each run as CSV, a line for each system as Markdown, and a plot."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from math import nan
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from ode_transformer.lab.analysis.plots import new_figure, plain_label, save_figure
from ode_transformer.lab.metrics.significance import Comparison, compare_systems, half_interval, mean_text
from ode_transformer.lab.pages.runs import STUDY_FILE
from ode_transformer.lab.studies.study import Row, Study
from ode_transformer.support import commands
from ode_transformer.support.files import write_text
from ode_transformer.support.tables import csv_text, markdown_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TABLE_NOTE = (
    "Mean ± standard deviation over seeds; difference to the first system by Dunnett's test of all systems against it: "
    "95% interval, adjusted p, verdict; compute: operations of the matrix products in a forward pass over a sentence, "
    "the first system's being 1."
)
PAIRS_NOTE = "Dunnett's test of all systems against the one that is named: 95% intervals, adjusted p, verdict."
_MARKER: dict[str, Any] = {"marker": "o", "capsize": 3}


@dataclass(frozen=True)
class StudyRun:
    """The results of one training of a study.

    :param operations: of a forward pass, see ``decoding.operations.count_forward_operations``
    :param origin: software, machine and command of the training, see ``provenance``
    :param validations: updates and perplexity of each validation
    :param score_commands: title -> command, of the scores of the first test set that follow from sentences
    """

    row: Row
    seed: int
    parameters: int
    operations: int
    updates: int
    minutes: float
    scores: Mapping[str, float]
    origin: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None
    validations: Sequence[tuple[int, float]] = ()
    score_commands: Mapping[str, Sequence[object]] = field(default_factory=dict)


@dataclass(frozen=True)
class PublishedScores:
    """Published scores of a system.

    :param value: of the axis in the paper
    """

    recipe: str
    scores: Mapping[str, float]
    value: int | None

    def text(self, title: str, value: int | None) -> str:
        """Return a score, with the paper's value of the axis if it is not ``value``."""
        if title not in self.scores:
            return ""
        return f"{self.scores[title]:.2f}" + (f" at {self.value}" if self.value != value else "")


@dataclass(frozen=True)
class StudyTable:
    """A table of a study.

    :param rows: the heads first
    """

    title: str
    rows: list[list[str]]
    note: str

    def __str__(self) -> str:
        return markdown_table(self.rows[0], self.rows[1:])


@dataclass(frozen=True)
class StudyResults:
    """The complete runs of a study at one setting.

    :param published: key of a row -> published scores
    """

    study: Study
    setting: str
    runs: Sequence[StudyRun]
    published: Mapping[tuple[str, int], PublishedScores]

    @property
    def titles(self) -> list[str]:
        return list(dict.fromkeys(title for run in self.runs for title in run.scores))

    def runs_of(self, row: Row) -> list[StudyRun]:
        return [run for run in self.runs if run.row == row]

    def scores(self, row: Row, title: str) -> list[float]:
        return [run.scores[title] for run in self.runs_of(row) if title in run.scores]

    def baseline(self, row: Row) -> Row:
        """Return the row that a row is compared with."""
        return Row(self.study.systems[0], row.value, row.position)

    @property
    def first_system(self) -> StudyRun:
        """A run of the first row, whose parameters and operations are 1 in all tables."""
        return self.runs_of(self.rows[0])[0]

    def compute(self, run: StudyRun) -> float:
        """Return the operations of a forward pass of a run's model; those of the first system are 1."""
        return run.operations / self.first_system.operations

    def csv(self) -> str:
        system, *axis = self.study.key_titles
        names = ["seed", "parameters", "operations", "updates", "minutes", *self.titles]
        lines: list[list[object]] = [[system, "control", *axis, *names]]
        for run in self.runs:
            name, *value = run.row.key_texts
            sizes = [run.seed, run.parameters, run.operations, run.updates, round(run.minutes, 2)]
            scores = [run.scores.get(title, "") for title in self.titles]
            lines.append([name, run.row.system.control or "", *value, *sizes, *scores])
        return csv_text(lines)

    @property
    def rows(self) -> list[Row]:
        return list(self.study.rows(self.setting))

    def main_table(self) -> StudyTable:
        """Return the table with a row for each system and value of the axis; ``TABLE_NOTE`` describes it."""
        titles = dict.fromkeys(title for entry in self.published.values() for title in entry.scores)
        recipes = ", ".join(dict.fromkeys(entry.recipe for entry in self.published.values()))
        columns = ["parameters", "compute", "seeds"]
        for title in self.titles:
            columns += [title, "difference"]
        columns += [f"{title}, published for {recipes}" for title in titles]
        has_first = bool(self.runs_of(self.rows[0]))
        lines = []
        for row in self.rows:
            runs, control = self.runs_of(row), row.system.control
            name, *value = row.key_texts
            line = [name + (f" (control: equal {control})" if control else ""), *value]
            line.append(f"{runs[0].parameters:,}" if runs else "")
            line.append(f"{self.compute(runs[0]):.2f}" if runs and has_first else "")
            line.append(str(len(runs)))
            for title in self.titles:
                line += [mean_text(self.scores(row, title)), self.difference_text(row, self.baseline(row), title)]
            entry = self.published.get(row.key)
            lines.append([*line, *(entry.text(title, row.value) if entry else "" for title in titles)])
        return StudyTable("Differences to the first system", [[*self.study.key_titles, *columns], *lines], TABLE_NOTE)

    def pair_table(self) -> StudyTable | None:
        """Return the differences to the systems named in ``against``; None without any."""
        lines = [
            [*self.pair_texts(*pair), *(self.difference_text(*pair, title) for title in self.titles)]
            for pair in self.pairs()
        ]
        if not lines or not self.titles:
            return None
        return StudyTable("Differences to other systems", [[*self.pair_titles, *self.titles], *lines], PAIRS_NOTE)

    def pairs(self) -> Iterator[tuple[Row, Row]]:
        """Yield each row with every system named in its ``against``, at the same value of the axis."""
        for row in self.rows:
            for reference in self.rows:
                if reference.system.name in row.system.against and reference.position == row.position:
                    yield row, reference

    @property
    def pair_titles(self) -> list[str]:
        """Titles of the columns that say which two systems are compared."""
        system, *axis = self.study.key_titles
        return [system, "against", *axis]

    def pair_texts(self, row: Row, reference: Row) -> list[str]:
        """Return the texts of the columns of :attr:`pair_titles`."""
        name, *value = row.key_texts
        return [name, reference.system.name, *value]

    @cached_property
    def comparisons(self) -> dict[tuple[str, tuple[str, int]], dict[str, Comparison]]:
        """Title of a score and key of a reference -> comparisons at the same value of the axis, by system."""
        compared = {}
        for reference in [*map(self.baseline, self.rows), *(reference for _, reference in self.pairs())]:
            rows = [row for row in self.rows if row.position == reference.position]
            for title in self.titles:
                scores = {row.system.name: values for row in rows if (values := self.scores(row, title))}
                if (title, reference.key) not in compared and reference.system.name in scores:
                    compared[title, reference.key] = compare_systems(scores, reference.system.name, title)
        return compared

    def difference_text(self, row: Row, reference: Row, title: str) -> str:
        return str(self.comparisons.get((title, reference.key), {}).get(row.system.name, ""))

    def plot(self, path: Path) -> None:
        """Draw a panel for each score, with means and their 95% confidence intervals, as a PNG.

        Systems are lines along the study's axis if there are runs at several of its values, otherwise rows.
        """
        varied = len({run.row.value for run in self.runs}) > 1
        titles, rows = self.titles, [row for row in self.rows if self.runs_of(row)]
        figure = new_figure(max(7.0, 4.5 * len(titles)), 4.0 if varied else 1.2 + 0.3 * len(rows))
        panels = figure.subplots(1, len(titles), squeeze=False)[0]
        for axes, title in zip(panels, titles, strict=True):
            (self._draw_lines if varied else self._draw_rows)(axes, title)
            axes.grid(alpha=0.3)
        if varied:
            handles, labels = panels[0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside right upper", fontsize="small")
        save_figure(figure, path)

    def _draw_lines(self, axes: Axes, title: str) -> None:
        """Draw a line for each system along the axis of the study; the markers of controls are hollow."""
        axis = self.study.axis
        assert axis is not None
        by_parameters = axis.plot == "parameters"
        for system in self.study.systems:
            rows = [row for row in self.rows if row.system == system and self.scores(row, title)]
            if not rows:
                continue
            positions = [self.runs_of(row)[0].parameters if by_parameters else row.value or 0 for row in rows]
            scores = [self.scores(row, title) for row in rows]
            means, errors = map(mean, scores), [half_interval(values) or nan for values in scores]
            style: dict[str, Any] = {"linestyle": "--", "markerfacecolor": "none"} if system.control else {}
            axes.errorbar(positions, list(means), errors, label=plain_label(system.name), **_MARKER, **style)
        if not by_parameters:
            axes.set_xticks(sorted({run.row.value or 0 for run in self.runs}))
        axes.set_xlabel("parameters" if by_parameters else axis.name)
        axes.set_ylabel(title)

    def _draw_rows(self, axes: Axes, title: str) -> None:
        """Draw a row for each system; the markers of controls are hollow."""
        rows = [row for row in self.rows if self.scores(row, title)]
        for height, row in enumerate(reversed(rows)):
            values = self.scores(row, title)
            style: dict[str, Any] = {"markerfacecolor": "none"} if row.system.control else {}
            axes.errorbar(mean(values), height, xerr=half_interval(values) or nan, color="C0", **_MARKER, **style)
        axes.set_yticks(range(len(rows)), [plain_label(row.system.name) for row in reversed(rows)])
        axes.set_xlabel(title)

    def write(self, folder: Path, origin: Mapping[str, str], more_tables: Sequence[StudyTable] = ()) -> str:
        """Write ``results.md``, ``results.csv``, ``results.png`` and ``study.json``; return the text of the first."""
        study, setting = self.study, self.study.settings[self.setting]
        variant = f", variant {setting.variant}" if setting.variant else ""
        where = " ".join([f"{setting.recipe}{variant}", *commands.flags(setting.flags)])
        paragraphs = [f"# {study.title}", f"{study.source}. Here: {where}."]
        paragraphs += [f"Criterion: {study.criterion}"] if study.criterion else []
        tables = [table for table in (self.main_table(), self.pair_table(), *more_tables) if table is not None]
        for table in tables:
            paragraphs += [f"## {table.title}", str(table), table.note]
        trained_with = {
            name: ", ".join(sorted({run.origin.get(name, "unknown") for run in self.runs})) or "none"
            for name in ("torch", "device", "commit")
        }
        paragraphs.append("Trained with: " + "; ".join(f"{name}: {value}" for name, value in trained_with.items()))
        paragraphs.append("This table: " + "; ".join(f"{name}: {value}" for name, value in origin.items()))
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / "results.csv", self.csv())
        if self.runs:
            self.plot(folder / "results.png")
        # For ode-transformer report
        runs = [
            {"name": str(run.row), "seed": run.seed, "folder": os.path.relpath(run.folder, folder)}
            for run in self.runs
            if run.folder is not None
        ]
        head = {"title": study.title, "source": study.source, "criterion": study.criterion}
        record = {**head, "tables": [asdict(table) for table in tables], "runs": runs}
        write_text(folder / STUDY_FILE, json.dumps(record, indent=1) + "\n")
        text = "\n\n".join(paragraphs) + "\n"
        write_text(folder / "results.md", text)
        return text
