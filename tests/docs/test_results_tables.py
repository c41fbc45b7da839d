"""The tables of docs/results are those that its command makes of the files of the results."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

RESULTS = Path(__file__).parents[2] / "docs" / "results"
PAGES = sorted(RESULTS.glob("*.md"))


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    """Return the module of the command, which stands beside the pages."""
    folder = str(RESULTS / "figures")
    sys.path.insert(0, folder)
    try:
        import tables
    finally:
        sys.path.remove(folder)
    return tables


@pytest.fixture(scope="module")
def declarations(tables: ModuleType) -> dict[str, dict]:
    return yaml.safe_load(tables.DECLARATIONS.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_command_writes_what_is_committed(page: Path, tables: ModuleType, declarations: dict[str, dict]) -> None:
    text = page.read_text(encoding="utf-8")
    emptied = tables.BLOCK.sub(lambda block: block[1] + block[3], text)
    assert tables.page_text(emptied, declarations) == text


def test_each_table_stands_on_one_page(declarations: dict[str, dict]) -> None:
    marks = [name for page in PAGES for name in re.findall(r"<!-- table: ([\w-]+) -->", page.read_text("utf-8"))]
    assert sorted(marks) == sorted(declarations)


def test_entries_have_the_numbers_of_the_files(tables: ModuleType, declarations: dict[str, dict]) -> None:
    """Compare entries of each kind with numbers that were worked out by hand from the files."""
    expected = {
        "table5": "| RK2 | 1.38 | 128.20 ± 0.89 | -7.17 [-9.12, -5.21] | 118.91 ± 0.71 | 131.80 | 123.23 |",
        "multi30k_short": "| RK2 | 1.29 | 36.15 ± 0.27 | +0.20 [-0.36, +0.75] | [-1.37, +2.01] | 6.42 ± 0.07 |",
        "stage_inputs": "| RK4 | 20.52 | 27.54 | 4.78 | 1.34 |",
        "gate_weights": "| RK2, gate | 0.00, 0.00, 0.00 | 1.00, 0.00, 0.00 |  |",
        "speed_memory": "| rk2-6 / fairseq-12 | 0.87 | 0.82 |",
    }
    for name, line in expected.items():
        assert line in tables.table_text(declarations[name]).splitlines()
