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
        "table5_pairs": "| RK2, gate | RK2 | -0.24% [-1.81, +1.37], p = 1.000: equivalent |",
        "multi30k_short_pairs": "| RK4 | layer repeated 4 times | +1.03 [+0.28, +1.78], p = 0.006: different "
        "| [+0.31, +2.00], p = 0.0217 |",
        "stage_inputs": "| RK4 | 20.52 | 27.54 | 4.78 | 1.34 |",
        "gate_weights": "| RK2, gate | 0.00, 0.00, 0.00 | 1.00, 0.00, 0.00 |  |",
        "speed_memory": "| rk2-6 / fairseq-12 | 0.87 | 0.79 |",
    }
    for name, line in expected.items():
        assert line in tables.table_text(declarations[name]).splitlines()
    row = next(line for line in tables.table_text(declarations["table5"]).splitlines() if line.startswith("| RK2 |"))
    assert row.endswith(" | 10 | 118.91 ± 0.71 | 131.80 | 123.23 |")


def test_a_table_without_runs_is_empty(tables: ModuleType) -> None:
    table = {"file": "not-yet", "score": "PER", "columns": {"PER": {"show": "mean"}, "against": {"show": "difference"}}}
    assert tables.table_text(table) == ""
    assert tables.page_text("<!-- table: a -->\n<!-- end -->", {"a": table}) == "<!-- table: a -->\n<!-- end -->"
