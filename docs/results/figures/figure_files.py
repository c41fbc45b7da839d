"""Rows of the studies' CSV files, spreads over seeds, and where a figure is written."""

import csv
from collections.abc import Collection
from math import nan
from pathlib import Path
from statistics import stdev

import matplotlib.pyplot as plt

FOLDER = Path(__file__).parents[1]
STUDIES = FOLDER / "studies"
BASELINE = "Residual"


def rows_of(name: str) -> list[dict[str, str]]:
    """Return the rows of a study's CSV file."""
    with open(STUDIES / f"{name}.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def spread_over_seeds(values: Collection[float]) -> float:
    """Return the standard deviation of a system's values; nan, which draws no bar, for a single seed."""
    return stdev(values) if len(values) > 1 else nan


def save(figure: plt.Figure, name: str) -> None:
    """Write a figure in the folder of the pages."""
    figure.savefig(FOLDER / name, dpi=120, metadata={"Software": None})
    plt.close(figure)
