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
