"""Fill the tables of the pages in docs/results from the files of the results, as tables.yaml declares them.

Command: python docs/results/figures/tables.py

A page marks a table's place; what stands between the two comments is replaced:

    <!-- table: NAME -->
    <!-- end -->

tables.yaml gives each name its columns, by title, and its rows: ``systems`` (by default all of the file), ``pairs`` of
a system and the one that it is compared with, or ``rows`` by their title. :class:`Entry` lists the fields of an entry;
those that all entries of a table share stand beside its columns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from statistics import mean, median
from typing import Any

import yaml
from result_files import FOLDER, rows_of

from ode_transformer.metrics.significance import difference_text, interval_text, mean_text
from ode_transformer.recipes.recipe import read_recipe
from ode_transformer.support.files import write_text
from ode_transformer.support.tables import markdown_table
from ode_transformer.support.yaml_file import CONFIGS

DECLARATIONS = FOLDER / "figures" / "tables.yaml"
BLOCK = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
BYTES_PER_PARAMETER = 16  # in half precision: weight, gradient, single-precision weight, two moments of Adam


@dataclass(frozen=True)
class Entry:
    """An entry of a table.

    :param show: what it shows, a key of ``SHOWN``
    :param file: a CSV file of docs/results/studies, a JSON file of docs/results or a recipe, without its ending
    :param where: values of further columns of the file
    :param score: column or key of the number
    :param system: name in the file
    :param against: the system that a difference is to
    :param names: the systems' names in a recipe
    :param text: shown as it is
    """

    show: str
    file: str = ""
    where: Mapping[str, str] = field(default_factory=dict)
    score: str = ""
    system: str = ""
    against: str = "Residual"
    names: Mapping[str, str] = field(default_factory=dict)
    text: str = ""

    def rows(self, system: str | None = None) -> list[dict[str, str]]:
        """Return the rows of a system, by default of the entry's own."""
        wanted = {"system": system or self.system, **self.where}
        return [row for row in study_rows(self.file) if wanted.items() <= row.items()]

    def values(self, system: str | None = None) -> list[float]:
        """Return the scores of a system."""
        return [float(row[self.score]) for row in self.rows(system) if row[self.score]]


@cache
def study_rows(name: str) -> list[dict[str, str]]:
    """Return the rows of a CSV file, with columns that measurements on trained models lack.

    ``model`` is split into ``system`` and ``setting``; ``last`` marks a model's last stage or update, ``farthest`` the
    stage that reads farthest from y; ``fraction`` is the first weight divided by the sum of both.
    """
    rows = [dict(row) for row in rows_of(name)]
    marks = {"stage": "last", "updates": "last", "moved": "farthest"}
    greatest: dict[tuple[str, ...], float] = {}
    for row in rows:
        if "model" in row:
            row["system"], *setting = row["model"].split("; ")
            row["setting"] = "; ".join(setting[:-1])
        if "weight_1" in row:
            first, second = float(row["weight_1"]), float(row["weight_2"])
            row["fraction"] = str(first / (first + second))
        for column in marks.keys() & row.keys():
            key = (column, *model_of(row))
            greatest[key] = max(greatest.get(key, 0), float(row[column]))
    for row in rows:
        for column in marks.keys() & row.keys():
            highest = greatest[column, *model_of(row)]
            row[marks[column]] = "yes" if float(row[column]) == highest > 0 else "no"
    return rows


def model_of(row: Mapping[str, str]) -> tuple[str, ...]:
    """Return what names the model and the layer of a measurement."""
    return tuple(row.get(column, "") for column in ("model", "block", "data", "system", "seed"))


def difference(entry: Entry) -> str:
    """Return the difference of two systems' means, with its interval over seeds."""
    values, baseline = entry.values(), entry.values(entry.against)
    return difference_text(values, baseline) if values and baseline and entry.system != entry.against else ""


def paired(entry: Entry) -> str:
    """Return the interval over sentences and seeds of the difference of two systems."""
    wanted = {"system": entry.system, "against": entry.against, "score": entry.score}
    rows = [row for row in rows_of(f"{entry.file}-paired") if wanted.items() <= row.items()]
    return interval_text((float(rows[0]["low"]), float(rows[0]["high"]))) if rows else ""


def operations(entry: Entry) -> str:
    """Return the operations of a system, relative to those of the file's first system."""
    rows = entry.rows()
    return f"{int(rows[0]['operations']) / int(rows_of(entry.file)[0]['operations']):.2f}" if rows else ""


def published(entry: Entry) -> str:
    """Return the published score of a recipe's system."""
    expected = read_recipe(CONFIGS / f"{entry.file}.yaml").expected
    scores = [result.scores for result in expected if result.system == entry.names.get(entry.system)]
    return f"{scores[0][entry.score]:.2f}" if scores else ""


@cache
def measurements(name: str) -> dict[str, Any]:
    """Return a JSON file of benchmarks/speed.py."""
    measured: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return measured


def ratio(entry: Entry) -> str:
    """Return the median of a comparison of two systems over the rounds, with the least and the greatest."""
    for comparison in measurements(entry.file)["comparisons"]:
        if (comparison["name"], comparison["measure"]) == (entry.system, entry.score):
            ratios = comparison["ratios"]
            spread = f" ({min(ratios):.2f}–{max(ratios):.2f})" if len(ratios) > 1 else ""
            return f"{median(ratios):.2f}{spread}"
    return ""


def milliseconds(entry: Entry) -> str:
    """Return the median time of a system."""
    times = measurements(entry.file)["results"].get(entry.system, {}).get(entry.score)
    return f"{1000 * median(times):,.0f}" if times else ""


def gibibytes(entry: Entry) -> str:
    """Return the memory of a training step with parameters, gradients and the optimizer's moments."""
    result = measurements(entry.file)["results"][entry.system]
    return f"{(result['peak'] + BYTES_PER_PARAMETER * result['parameters']) / 2**30:.1f}"


SHOWN: dict[str, Callable[[Entry], str]] = {
    "mean": lambda entry: mean_text(entry.values()),
    "average": lambda entry: mean_text([mean(entry.values())]) if entry.values() else "",
    "each": lambda entry: ", ".join(f"{value:.2f}" for value in entry.values()),
    "difference": difference,
    "paired": paired,
    "operations": operations,
    "seeds": lambda entry: str(len(entry.rows()) or ""),
    "published": published,
    "ratio": ratio,
    "milliseconds": milliseconds,
    "gibibytes": gibibytes,
    "run": lambda entry: str(measurements(entry.file)["ran"][entry.score]),
    "text": lambda entry: entry.text,
}


def table_rows(table: Mapping[str, Any], shared: Mapping[str, Any]) -> list[tuple[list[str], dict[str, Any]]]:
    """Return titles and fields of a table's rows."""
    if "rows" in table:
        return [([title], values) for title, values in table["rows"].items()]
    if "pairs" in table:
        return [([system, other], {"system": system, "against": other}) for system, other in table["pairs"]]
    names = table.get("systems") or dict.fromkeys(
        row["system"] for row in study_rows(shared["file"]) if shared.get("where", {}).items() <= row.items()
    )
    return [([name], {"system": name}) for name in names]


def table_text(table: Mapping[str, Any]) -> str:
    """Return a declared table as Markdown."""
    shared = {key: value for key, value in table.items() if key in {entry.name for entry in fields(Entry)}}
    first = ["system", "against"] if "pairs" in table else [table.get("first", "system")]
    lines = []
    for titles, row in table_rows(table, shared):
        entries = []
        for column in table["columns"].values():
            where = {**shared.get("where", {}), **column.get("where", {}), **row.get("where", {})}
            entry = Entry(**{**shared, **column, **row, "where": where})
            entries.append(SHOWN[entry.show](entry))
        lines.append([*titles, *entries])
    alignment = "l" * len(first) + "".join(
        "l" if c["show"] in ("text", "run", "command") else "r" for c in table["columns"].values()
    )
    return markdown_table([*first, *table["columns"]], lines, alignment)


def page_text(text: str, tables: Mapping[str, Any]) -> str:
    """Return the text of a page with its tables filled."""
    return BLOCK.sub(lambda block: f"{block[1]}\n{table_text(tables[block[2]])}\n\n{block[3]}", text)


def main() -> None:
    """Fill the tables of all pages."""
    tables = yaml.safe_load(DECLARATIONS.read_text(encoding="utf-8"))
    for page in sorted(FOLDER.glob("*.md")):
        write_text(page, page_text(page.read_text(encoding="utf-8"), tables))


if __name__ == "__main__":
    main()
