"""What the runs of a study found: a line for each run as CSV, a line for each system as Markdown, and a plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from pathlib import Path
from statistics import mean, stdev

from scipy import stats

from ode_transformer.analysis.plots import new_figure, plain_label, save_figure
from ode_transformer.studies.study import Cell, Study
from ode_transformer.support import commands
from ode_transformer.support.files import write_text
from ode_transformer.support.tables import csv_text, markdown_table

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Run:
    """One training and what it scored.

    :param parameters: of the model
    :param operations: of a forward pass, see ``models.operation_count.count_forward_operations``
    :param updates: of the training
    :param minutes: that it took
    :param scores: by name
    :param made_with: what the training ended with, see ``provenance``
    """

    cell: Cell
    seed: int
    parameters: int
    operations: int
    updates: int
    minutes: float
    scores: Mapping[str, float]
    made_with: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Published:
    """A paper's scores of a system.

    :param recipe: the data set that they are of
    :param scores: by name
    :param value: of the axis in the paper
    """

    recipe: str
    scores: Mapping[str, float]
    value: int | None

    def shown(self, title: str, value: int | None) -> str:
        """A score, and which value of the axis it belongs to if that is another."""
        if title not in self.scores:
            return ""
        return f"{self.scores[title]:.2f}" + (f" at {self.value}" if self.value != value else "")


def half_interval(values: Sequence[float]) -> float | None:
    """Half the width of the 95% confidence interval of the mean, by Student's t; None for a single value."""
    if len(values) < 2:
        return None
    return float(stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)) * stdev(values) / len(values) ** 0.5


def difference(values: Sequence[float], baseline: Sequence[float]) -> tuple[float, tuple[float, float] | None]:
    """How far the mean lies from the baseline's, and the 95% confidence interval of that, by Welch's t.

    There is no interval where either has a single value, or neither varies.
    """
    between = mean(values) - mean(baseline)
    if min(len(values), len(baseline)) < 2 or not (stdev(values) or stdev(baseline)):
        return between, None
    interval = stats.ttest_ind(values, baseline, equal_var=False).confidence_interval(CONFIDENCE)
    return between, (float(interval.low), float(interval.high))


@dataclass(frozen=True)
class Results:
    """All runs of a study at one place that have ended.

    :param published: key of a cell -> what a paper has
    """

    study: Study
    place: str
    runs: Sequence[Run]
    published: Mapping[tuple[str, int], Published]

    @property
    def titles(self) -> list[str]:
        """Of the scores."""
        return list(dict.fromkeys(title for run in self.runs for title in run.scores))

    def of(self, cell: Cell) -> list[Run]:
        return [run for run in self.runs if run.cell == cell]

    def scores(self, cell: Cell, title: str) -> list[float]:
        return [run.scores[title] for run in self.of(cell) if title in run.scores]

    def baseline(self, cell: Cell) -> Cell:
        """What a system is compared with."""
        return Cell(self.study.systems[0], cell.value, cell.number)

    def csv(self) -> str:
        axis = [self.study.axis.name] if self.study.axis else []
        names = ["seed", "parameters", "operations", "updates", "minutes", *self.titles]
        rows: list[list[object]] = [["system", "control", *axis, *names]]
        for run in self.runs:
            cell = [run.cell.system.name, run.cell.system.control or "", *([run.cell.value] if axis else [])]
            sizes = [run.seed, run.parameters, run.operations, run.updates, round(run.minutes, 2)]
            rows.append([*cell, *sizes, *(run.scores.get(title, "") for title in self.titles)])
        return csv_text(rows)

    @property
    def cells(self) -> list[Cell]:
        return list(self.study.cells(self.place))

    def markdown(self) -> str:
        """Mean ± standard deviation over seeds, the difference to the baseline, and the published scores."""
        axis = [self.study.axis.name] if self.study.axis else []
        titles = dict.fromkeys(title for entry in self.published.values() for title in entry.scores)
        recipes = ", ".join(dict.fromkeys(entry.recipe for entry in self.published.values()))
        heads = ["parameters", "compute", "seeds"]
        for title in self.titles:
            heads += [title, "difference [95%]"]
        heads += [f"{title}, published for {recipes}" for title in titles]
        first = self.of(self.cells[0])
        rows = []
        for cell in self.cells:
            runs, control = self.of(cell), cell.system.control
            row = [cell.system.name + (f" (control: equal {control})" if control else "")]
            row += [str(cell.value)] if axis else []
            row.append(f"{runs[0].parameters:,}" if runs else "")
            row.append(f"{runs[0].operations / first[0].operations:.2f}" if runs and first else "")
            row.append(str(len(runs)))
            for title in self.titles:
                values = self.scores(cell, title)
                spread = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
                row += [
                    f"{mean(values):.2f}{spread}" if values else "",
                    self.compared(cell, self.baseline(cell), title),
                ]
            entry = self.published.get(cell.key)
            rows.append([*row, *(entry.shown(title, cell.value) if entry else "" for title in titles)])
        return markdown_table(["system", *axis, *heads], rows)

    def pairs(self) -> str:
        """The differences that systems are asked for beside those to the baseline; empty if none are."""
        axis = [self.study.axis.name] if self.study.axis else []
        rows = []
        for cell in self.cells:
            for other in self.cells:
                if other.system.name in cell.system.against and other.number == cell.number:
                    row = [cell.system.name, other.system.name, *([str(cell.value)] if axis else [])]
                    rows.append([*row, *(self.compared(cell, other, title) for title in self.titles)])
        return markdown_table(["system", "against", *axis, *self.titles], rows) if rows and self.titles else ""

    def compared(self, cell: Cell, other: Cell, title: str) -> str:
        """The difference of the means, and its confidence interval."""
        values, others = self.scores(cell, title), self.scores(other, title)
        if not values or not others or cell == other:
            return ""
        between, interval = difference(values, others)
        return f"{between:+.2f}" + (f" [{interval[0]:+.2f}, {interval[1]:+.2f}]" if interval else "")

    def plot(self, path: Path) -> None:
        """A panel for each score: means and their 95% confidence intervals, as a PNG.

        Along the axis of the study, if there are runs at several of its values; otherwise a line for each system.
        """
        along = len({run.cell.value for run in self.runs}) > 1
        titles, cells = self.titles, [cell for cell in self.cells if self.of(cell)]
        figure = new_figure(max(7.0, 4.5 * len(titles)), 4.0 if along else 1.2 + 0.3 * len(cells))
        panels = figure.subplots(1, len(titles), squeeze=False)[0]
        for axes, title in zip(panels, titles, strict=True):
            (self._lines if along else self._dots)(axes, title)
            axes.grid(alpha=0.3)
        if along:
            handles, labels = panels[0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside right upper", fontsize="small")
        save_figure(figure, path)

    def _lines(self, axes, title: str) -> None:
        """A line for each system, along the axis of the study; controls are hollow."""
        axis = self.study.axis
        assert axis is not None
        sized = axis.plot == "parameters"
        for system in self.study.systems:
            cells = [cell for cell in self.cells if cell.system == system and self.scores(cell, title)]
            if not cells:
                continue
            across = [self.of(cell)[0].parameters if sized else cell.value for cell in cells]
            found = [self.scores(cell, title) for cell in cells]
            errors = [half_interval(values) or nan for values in found]
            style = {"linestyle": "--", "markerfacecolor": "none"} if system.control else {}
            axes.errorbar(
                across, list(map(mean, found)), errors, marker="o", capsize=3, label=plain_label(system.name), **style
            )
        if not sized:
            axes.set_xticks(sorted({run.cell.value for run in self.runs}))
        axes.set_xlabel("parameters" if sized else axis.name)
        axes.set_ylabel(title)

    def _dots(self, axes, title: str) -> None:
        """A line of the plot for each system; controls are hollow."""
        cells = [cell for cell in self.cells if self.scores(cell, title)]
        for height, cell in enumerate(reversed(cells)):
            values = self.scores(cell, title)
            style = {"markerfacecolor": "none"} if cell.system.control else {}
            axes.errorbar(
                mean(values), height, xerr=half_interval(values) or nan, marker="o", capsize=3, color="C0", **style
            )
        axes.set_yticks(range(len(cells)), [plain_label(cell.system.name) for cell in reversed(cells)])
        axes.set_xlabel(title)

    def trained_with(self) -> str:
        """On what the runs were trained, and by which commits."""
        told = []
        for name in ("torch", "device", "commit"):
            values = sorted({run.made_with.get(name, "unknown") for run in self.runs})
            told.append(f"{name}: {', '.join(values) or 'none'}")
        return "Trained with: " + "; ".join(told)

    def write(self, folder: Path, ran: Mapping[str, str]) -> str:
        """Writes ``results.md``, ``results.csv`` and ``results.png``; returns the first.

        :param ran: what the table was made with, see ``provenance``
        """
        study, place = self.study, self.study.places[self.place]
        variant = f", variant {place.variant}" if place.variant else ""
        where = " ".join([f"{place.recipe}{variant}", *commands.flags(place.flags)])
        about = [f"# {study.title}", f"{study.source}. Here: {where}."]
        about += [f"Criterion, written down before the runs: {study.criterion}"] if study.criterion else []
        about.append(self.markdown())
        about.append(
            "Mean ± standard deviation over seeds; difference to the first system with Welch's 95% confidence "
            "interval; compute: operations of the matrix products in a forward pass over a sentence, the first "
            "system's being 1."
        )
        if pairs := self.pairs():
            about += ["Differences to other systems, with Welch's 95% confidence intervals:", pairs]
        about.append(self.trained_with())
        about.append("This table: " + "; ".join(f"{name}: {value}" for name, value in ran.items()))
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / "results.csv", self.csv())
        if self.runs:
            self.plot(folder / "results.png")
        text = "\n\n".join(about) + "\n"
        write_text(folder / "results.md", text)
        return text
