"""Numbers of several systems over buckets of a quantity, as Markdown, CSV and a plot."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ode_transformer.lab.analysis.plots import plain_label, saved_panel
from ode_transformer.support.tables import csv_text, markdown_table


@dataclass(frozen=True)
class Buckets:
    """Ranges of whole numbers, the last one open.

    :param ends: last number of each bucket but the open one, in rising order
    :param start: smallest possible number
    """

    ends: tuple[int, ...]
    start: int = 1

    def indices(self, numbers: Any) -> np.ndarray:
        """Return the index of each number's bucket, from 0 on."""
        return np.searchsorted(self.ends, numbers)

    def totals(self, numbers: Any, weights: Any = None) -> list[float]:
        """Return the sum of the weights (default: 1 each) of the numbers in each bucket."""
        counts: list[float] = np.bincount(self.indices(numbers), weights, len(self.ends) + 1).tolist()
        return counts

    def names(self) -> list[str]:
        """Return the names ``1-10``, …, ``51+``."""
        starts = [self.start, *(end + 1 for end in self.ends)]
        closed = [str(end) if first == end else f"{first}-{end}" for first, end in zip(starts, self.ends, strict=False)]
        return [*closed, f"{starts[-1]}+"]


@dataclass(frozen=True)
class BucketTable:
    """A table with a row for each bucket (or system) and a column for each system (or measure).

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

    def _entries(self, missing: str, number_format: str) -> list[list[str]]:
        """Return titles and rows as texts."""
        columns: dict[str, list[str]] = {self.row_title: list(self.rows)}
        if self.count_title is not None:
            columns[self.count_title] = list(map(str, self.counts))
        for name, values in self.columns.items():
            columns[name] = [missing if value is None else format(value, number_format) for value in values]
        return [list(columns), *map(list, zip(*columns.values(), strict=True))]

    def markdown(self) -> str:
        """Return title and table, with two decimals."""
        titles, *rows = self._entries("–", ".2f")
        return f"**{self.value_title}**\n\n{markdown_table(titles, rows)}\n"

    def csv(self) -> str:
        """Return the table with all digits; a field is empty where there is nothing to measure."""
        return csv_text(self._entries("", ""))

    def draw(self, path: Path, title: str) -> None:
        """Draw a curve for each column over the rows; for a single row, a bar for each column.

        Ticks of buckets have the count of the bucket below them.
        """
        with saved_panel(path, 6, 3.5) as axes:
            if len(self.rows) == 1:
                names = [plain_label(name) for name in self.columns]
                axes.bar(names, [column[0] or 0 for column in self.columns.values()], width=0.6)
            else:
                for name, column in self.columns.items():
                    points = {position: value for position, value in enumerate(column) if value is not None}
                    axes.plot(list(points), list(points.values()), marker="o", label=plain_label(name))
                labels = self.rows if self.count_title is None else map("{}\n({:,})".format, self.rows, self.counts)
                axes.set_xticks(range(len(self.rows)), list(labels))
                counted = "" if self.count_title is None else f" ({self.count_title} in brackets)"
                axes.set_xlabel(self.row_title + counted)
                axes.legend()
            axes.set_title(plain_label(title), fontsize="medium")
            axes.set_ylabel(self.value_title)
            axes.grid(axis="y", alpha=0.3)
