"""Rows of the studies' CSV files."""

import csv
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parents[1]
STUDIES = FOLDER / "studies"


@cache
def rows_of(name: str) -> list[dict[str, str]]:
    """Return the rows of a study's CSV file; none before the file exists."""
    if not (STUDIES / f"{name}.csv").exists():
        return []
    with open(STUDIES / f"{name}.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
