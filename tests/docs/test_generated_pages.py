"""Generated pages are those that ``python docs/generate.py`` writes."""

from pathlib import Path

import pytest
from generator import combinations, experiments, flags

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {
    "combinations.md": combinations.page,
    "flags.md": flags.reference_page,
    "experiments.md": experiments.experiments_page,
}


@pytest.mark.parametrize("name", PAGES)
def test_the_committed_page_is_current(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name]()
