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
RESIDUAL = re.compile(rf"^{BASELINE}|^RK2, coefficients 1$|^middle layer")
SQUARE, CIRCLE, DIAMOND = ("s", "C0"), ("o", "C1"), ("D", "gray")


def rows_of(name: str) -> list[dict[str, str]]:
    """Return the rows of a study's CSV file."""
    with open(STUDIES / f"{name}.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def mark_of(row: Mapping[str, str]) -> tuple[str, str]:
    """Return marker and colour of a row's system.

    Residual layers, also with longer steps, more of them or repeated ones, are ``SQUARE``, other schemes ``CIRCLE``.
    """
    if "fairseq" in row["system"]:
        return DIAMOND
    return SQUARE if row["control"] or RESIDUAL.search(row["system"]) else CIRCLE


def spread_over_seeds(values: Collection[float]) -> float:
    """Return the standard deviation of a system's values; nan, which draws no bar, for a single seed."""
    return stdev(values) if len(values) > 1 else nan


def save(figure: plt.Figure, name: str) -> None:
    """Write a figure in the folder of the pages."""
    figure.savefig(FOLDER / name, dpi=120, metadata={"Software": None})
    plt.close(figure)
