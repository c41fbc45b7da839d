"""Spreads over seeds, and the folder of the figures."""

from collections.abc import Collection
from math import nan
from statistics import stdev

import matplotlib.pyplot as plt
from result_files import FOLDER


def spread_over_seeds(values: Collection[float]) -> float:
    """Return the standard deviation of a system's values; nan, which draws no bar, for a single seed."""
    return stdev(values) if len(values) > 1 else nan


def save(figure: plt.Figure, name: str) -> None:
    """Write a figure in the folder of the pages."""
    figure.savefig(FOLDER / name, dpi=120, metadata={"Software": None})
    plt.close(figure)
