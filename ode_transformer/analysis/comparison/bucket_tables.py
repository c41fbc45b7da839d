"""Numbers of several systems over buckets of a quantity: as Markdown, CSV and a plot."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ode_transformer.analysis.plots import new_figure, save_figure
from ode_transformer.support.tables import csv_text


@dataclass(frozen=True)
class Buckets:
    """Ranges of whole numbers, the last one open.

    :param ends: the last number of each bucket but the open one, rising
    :param start: the smallest number there is
    """

    ends: tuple[int, ...]
    start: int = 1

    def __len__(self) -> int:
        return len(self.ends) + 1

    def index(self, number: int) -> int:
        """The bucket of a number, from 0 on."""
        return bisect_left(self.ends, number)

    def names(self) -> list[str]:
        """``1-10``, …, ``51+``."""
        starts = [self.start, *(end + 1 for end in self.ends)]
        closed = [str(end) if first == end else f"{first}-{end}" for first, end in zip(starts, self.ends, strict=False)]
        return [*closed, f"{starts[-1]}+"]


@dataclass(frozen=True)
class Table:
    """A line for each bucket (or system), a column for each system (or measure).

    :param name: of its files
    :param rows: names of the lines
    :param row_title: what they are
    :param value_title: what the numbers are
    :param columns: name -> a number for each line; None where there is nothing to measure
    :param counts: what each line is measured on, and
    :param count_title: its unit; None for no such column
    """

    name: str
    rows: Sequence[str]
    row_title: str
    value_title: str
    columns: dict[str, list[float | None]]
    counts: Sequence[int] = ()
    count_title: str | None = None

    def _lines(self, empty: str, number: str) -> list[list[str]]:
        """Head and lines; ``number`` is how a measured one is written."""
        counted = self.count_title is not None
        lines = [[self.row_title, *([self.count_title or ""] if counted else []), *self.columns]]
        for place, row in enumerate(self.rows):
            values = (column[place] for column in self.columns.values())
            numbers = [empty if value is None else format(value, number) for value in values]
            lines.append([row, *([str(self.counts[place])] if counted else []), *numbers])
        return lines

    def markdown(self) -> str:
        """Title and table; two decimals."""
        head, *lines = ([cell.replace("|", "\\|") for cell in line] for line in self._lines("–", ".2f"))
        ruler = ["---", *["---:"] * (len(head) - 1)]
        return f"**{self.value_title}**\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in (head, ruler, *lines))

    def csv(self) -> str:
        """All digits; an empty field where there is nothing to measure."""
        return csv_text(self._lines("", ""))

    def draw(self, path: Path) -> None:
        """A curve for each column over the lines, or bars where there is one line alone.

        :raises UserError: matplotlib is not installed
        """
        figure = new_figure(6, 3.5)
        axes = figure.subplots()
        places = range(len(self.rows))
        for number, (name, column) in enumerate(self.columns.items()):
            measured = [(place, value) for place, value in zip(places, column, strict=True) if value is not None]
            values = [value for _, value in measured]
            if len(self.rows) == 1:
                axes.bar([number] * len(values), values, width=0.6, label=name)
                axes.set_xticks([])
            else:
                axes.plot([place for place, _ in measured], values, marker="o", label=name)
                axes.set_xticks(places, self.rows)
        axes.set_xlabel(self.row_title)
        axes.set_ylabel(self.value_title)
        axes.grid(axis="y", alpha=0.3)
        axes.legend()
        save_figure(figure, path)
