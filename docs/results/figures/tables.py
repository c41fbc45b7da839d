"""Fill the tables of the pages in docs/results from the files of the results, as tables.yaml declares them.

Command: python docs/results/figures/tables.py

A page marks a table's place; what stands between the two comments is replaced:

    <!-- table: NAME -->
    <!-- end -->

tables.yaml gives each name its columns, by title, and its rows: ``systems`` (by default all of the file), ``pairs`` of
a system and the one that it is compared with, or ``rows`` by their title. :class:`Entry` lists the fields of an entry;
those that all entries of a table share stand beside its columns. Rows and columns without an entry are left out, and a
table without rows is empty: its file does not exist yet. Below each table stand links to its files.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from statistics import mean, median, quantiles
from typing import Any

import yaml
from result_files import FOLDER, STUDIES, rows_of

from ode_transformer.lab.metrics.significance import Comparison, compare_systems, interval_text, mean_text
from ode_transformer.lab.recipes.recipe import read_recipe
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
    :param names: the systems' names in a recipe, or in measurements of speed
    :param tests: of a claim: comparisons by their titles, each with fields of this class
    :param text: shown as it is
    """

    show: str
    file: str = ""
    where: Mapping[str, str] = field(default_factory=dict)
    score: str = ""
    system: str = ""
    against: str = "Residual"
    names: Mapping[str, str] = field(default_factory=dict)
    tests: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
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


@cache
def comparisons(file: str, score: str, against: str, where: frozenset[tuple[str, str]]) -> dict[str, Comparison]:
    """Return Dunnett's test of all systems of a file's rows against one of them, by system."""
    scores: dict[str, list[float]] = {}
    for row in study_rows(file):
        if where <= row.items() and row[score]:
            scores.setdefault(row["system"], []).append(float(row[score]))
    return compare_systems(scores, against, dict(where).get("score", score)) if against in scores else {}


def comparison(entry: Entry) -> Comparison | None:
    """Return the comparison of two systems over seeds."""
    compared = comparisons(entry.file, entry.score, entry.against, frozenset(entry.where.items()))
    return compared.get(entry.system)


def difference(entry: Entry) -> str:
    """Return the difference of two systems over seeds, with its test."""
    return str(comparison(entry) or "")


def verdict(entry: Entry) -> str:
    """Return the difference of two systems over seeds with its test but no interval, or those of a claim's tests."""
    if not entry.tests:
        compared = comparison(entry)
        return compared.text(with_interval=False) if compared else ""
    shared = {"show": "verdict", "file": entry.file, "score": entry.score, "where": entry.where}
    texts = {title: verdict(Entry(**{**shared, **test})) for title, test in entry.tests.items()}
    return "; ".join(f"{title} {text}" for title, text in texts.items() if text)


def sentences(entry: Entry) -> str:
    """Return the interval and p over sentences of the difference of two systems."""
    wanted = {"system": entry.system, "against": entry.against, "score": entry.score}
    rows = [row for row in rows_of(f"{entry.file}-paired") if wanted.items() <= row.items()]
    return (
        f"{interval_text((float(rows[0]['low']), float(rows[0]['high'])))}, p = {float(rows[0]['p']):.4f}"
        if rows
        else ""
    )


def best_epoch(entry: Entry) -> str:
    """Return the epochs of the lowest perplexity, the first and the last of all seeds."""
    lowest: dict[str, tuple[float, int]] = {}
    for row in rows_of(entry.file):
        system, *model = row["run"].split("; ")
        if system == entry.system and model[0] == entry.where["output"]:
            point = float(row["perplexity"]), int(row["epoch"])
            lowest[model[1]] = min(lowest.get(model[1], point), point)
    epochs = sorted({epoch for _, epoch in lowest.values()})
    return "–".join(map(str, dict.fromkeys([*epochs[:1], *epochs[-1:]])))


def operations(entry: Entry) -> str:
    """Return the operations of a system, relative to those of the file's first system in the entry's setting."""
    rows = [row for row in study_rows(entry.file) if entry.where.items() <= row.items()]
    own = entry.rows()
    return f"{int(own[0]['operations']) / int(rows[0]['operations']):.2f}" if own else ""


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
    """Return the median of a comparison of two systems over the rounds, with its range or quartiles."""
    for comparison in measurements(entry.file)["comparisons"]:
        name = entry.names.get(entry.system, entry.system)
        if (comparison["name"], comparison["measure"]) == (name, entry.score):
            ratios = comparison["ratios"]
            if len(ratios) == 1:
                return f"{ratios[0]:.2f}"
            low, middle, high = (
                quantiles(ratios) if entry.show == "quartiles" else (min(ratios), median(ratios), max(ratios))
            )
            return f"{middle:.2f} ({low:.2f}–{high:.2f})"
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
    "verdict": verdict,
    "sentences": sentences,
    "best epoch": best_epoch,
    "operations": operations,
    "seeds": lambda entry: str(len(entry.rows()) or ""),
    "parameters": lambda entry: f"{int(entry.rows()[0]['parameters']):,}" if entry.rows() else "",
    "published": published,
    "ratio": ratio,
    "quartiles": ratio,
    "launches": lambda entry: f"{measurements(entry.file)['results'][entry.names[entry.system]]['kernels']:,}",
    "whole number": lambda entry: f"{int(entry.values()[0]):,}" if entry.values() else "",
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
    """Return a declared table as Markdown, with links to its files."""
    shared = {key: value for key, value in table.items() if key in {entry.name for entry in fields(Entry)}}
    first = ["system", "against"] if "pairs" in table else [table.get("first", "system")]
    columns, lines, files = table["columns"], [], set()
    for titles, row in table_rows(table, shared):
        entries = []
        for column in columns.values():
            where = {**shared.get("where", {}), **column.get("where", {}), **row.get("where", {})}
            entry = Entry(**{**shared, **column, **row, "where": where})
            entries.append(SHOWN[entry.show](entry))
            if entries[-1]:
                paired = f"{entry.file}-paired" if entry.show == "sentences" else ""
                files |= {entry.file, paired, *(test.get("file", "") for test in entry.tests.values())}
        if any(entry for entry, column in zip(entries, columns.values(), strict=True) if column["show"] != "text"):
            lines.append([*titles, *entries])
    if not lines:
        return ""
    shown = [number for number, entries in enumerate(zip(*lines, strict=True)) if any(entries)]
    titles = [*first, *columns]
    left = [*first, *(title for title, column in columns.items() if column["show"] in ("text", "run"))]
    paths = [STUDIES / f"{name}.csv" for name in sorted(files)]
    links = [f"[{path.stem}]({os.path.relpath(path, FOLDER)})" for path in paths if path.exists()]
    text = markdown_table(
        [titles[number] for number in shown],
        [[line[number] for number in shown] for line in lines],
        "".join("l" if titles[number] in left else "r" for number in shown),
    )
    return "\n\n".join([text, *(["Files: " + ", ".join(links)] if links else [])])


def page_text(text: str, tables: Mapping[str, Any]) -> str:
    """Return the text of a page with its tables filled."""

    def filled(block: re.Match[str]) -> str:
        table = table_text(tables[block[2]])
        return f"{block[1]}\n{table}\n\n{block[3]}" if table else f"{block[1]}{block[3]}"

    return BLOCK.sub(filled, text)


def main() -> None:
    """Fill the tables of all pages."""
    tables = yaml.safe_load(DECLARATIONS.read_text(encoding="utf-8"))
    for page in sorted(FOLDER.glob("*.md")):
        write_text(page, page_text(page.read_text(encoding="utf-8"), tables))


if __name__ == "__main__":
    main()
