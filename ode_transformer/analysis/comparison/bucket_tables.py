"""Numbers of several systems over buckets of a quantity, as Markdown, CSV and a plot."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ode_transformer.analysis.plots import new_figure, plain_label, save_figure
from ode_transformer.support.tables import csv_text, markdown_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Buckets:
    """Ranges of whole numbers, the last one open.

    :param ends: last number of each bucket but the open one, in rising order
    :param start: smallest possible number
    """

    ends: tuple[int, ...]
    start: int = 1

    def __len__(self) -> int:
        return len(self.ends) + 1

    def index(self, number: int) -> int:
        """Return the index of a number's bucket, from 0 on."""
        return bisect_left(self.ends, number)

    def names(self) -> list[str]:
        """Return the names ``1-10``, …, ``51+``."""
        starts = [self.start, *(end + 1 for end in self.ends)]
        closed = [str(end) if first == end else f"{first}-{end}" for first, end in zip(starts, self.ends, strict=False)]
        return [*closed, f"{starts[-1]}+"]


@dataclass(frozen=True)
class BucketTable:
    """A table with a row for each bucket (or system) and a column for each system (or measure).

    :param name: name of its files
    :param rows: names of the rows
    :param row_title: quantity of the rows
    :param value_title: quantity of the numbers
    :param columns: name of a column -> a number for each row; None where there is nothing to measure
    :param counts: number of sentences or tokens behind each row, if ``count_title`` is set
    :param count_title: unit of the counts; None for a table without a column of counts
    """

    name: str
    rows: Sequence[str]
    row_title: str
    value_title: str
    columns: dict[str, list[float | None]]
    counts: Sequence[int] = ()
    count_title: str | None = None

    def _cells(self, missing: str, number_format: str) -> list[list[str]]:
        """Return titles and rows as texts."""
        has_counts = self.count_title is not None
        cells = [[self.row_title, *([self.count_title or ""] if has_counts else []), *self.columns]]
        for index, row in enumerate(self.rows):
            values = (column[index] for column in self.columns.values())
            numbers = [missing if value is None else format(value, number_format) for value in values]
            cells.append([row, *([str(self.counts[index])] if has_counts else []), *numbers])
        return cells

    def markdown(self) -> str:
        """Return title and table, with two decimals."""
        titles, *rows = self._cells("–", ".2f")
        return f"**{self.value_title}**\n\n{markdown_table(titles, rows)}\n"

    def csv(self) -> str:
        """Return the table with all digits; a field is empty where there is nothing to measure."""
        return csv_text(self._cells("", ""))

    def can_be_drawn(self) -> bool:
        """Return True if a plot would show more than a single number."""
        return len(self.rows) > 1 or len(self.columns) > 1

    def draw(self, path: Path, title: str) -> None:
        """Write the plot of :meth:`figure` in the format of the path's suffix."""
        save_figure(self.figure(title), path)

    def figure(self, title: str) -> Figure:
        """Draw a curve for each column over the rows; for a single row, a bar for each column.

        Ticks of buckets have the count of the bucket below them.

        :raises UserError: matplotlib is not installed
        """
        figure = new_figure(6, 3.5)
        axes = figure.subplots()
        if len(self.rows) == 1:
            values = [column[0] for column in self.columns.values()]
            axes.bar(range(len(values)), [value or 0 for value in values], width=0.6)
            axes.set_xticks(range(len(values)), [plain_label(name) for name in self.columns])
        else:
            positions = range(len(self.rows))
            for name, column in self.columns.items():
                points = {p: value for p, value in zip(positions, column, strict=True) if value is not None}
                axes.plot(list(points), list(points.values()), marker="o", label=plain_label(name))
            labels = self.rows if self.count_title is None else map("{}\n({:,})".format, self.rows, self.counts)
            axes.set_xticks(positions, [plain_label(label) for label in labels])
            counted = "" if self.count_title is None else f" ({self.count_title} in brackets)"
            axes.set_xlabel(plain_label(self.row_title + counted))
            axes.legend()
        axes.set_title(plain_label(title), fontsize="medium")
        axes.set_ylabel(plain_label(self.value_title))
        axes.grid(axis="y", alpha=0.3)
        return figure
