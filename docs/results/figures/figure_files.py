"""Rows of the studies' CSV files, spreads over seeds, and where a figure is written."""

import csv
import re
from collections.abc import Collection, Mapping
from math import nan
from pathlib import Path
from statistics import stdev

import matplotlib.pyplot as plt

FOLDER = Path(__file__).parents[1]
STUDIES = FOLDER / "studies"
BASELINE = "Residual"
# Systems that are residual layers under another name: RK2 with coefficients 1 applies a layer twice.
RESIDUAL = re.compile(rf"^{BASELINE}|^RK2, (coefficients 1|1 and 1)$|^middle layer")


def rows_of(name: str) -> list[dict[str, str]]:
    """Return the rows of a study's CSV file."""
    with open(STUDIES / f"{name}.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def is_residual(row: Mapping[str, str]) -> bool:
    """Return whether the system of a row is residual layers: with longer steps, more of them, or repeated."""
    return bool(row["control"] or RESIDUAL.search(row["system"]))


def spread_over_seeds(values: Collection[float]) -> float:
    """Return the standard deviation of a system's values; nan, which draws no bar, for a single seed."""
    return stdev(values) if len(values) > 1 else nan


def save(figure: plt.Figure, name: str) -> None:
    """Write a figure in the folder of the pages."""
    figure.savefig(FOLDER / name, dpi=120, metadata={"Software": None})
    plt.close(figure)
