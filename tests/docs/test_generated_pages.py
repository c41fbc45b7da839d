"""Generated files are those that ``python docs/generate.py`` writes."""

from pathlib import Path

import pytest
from generator import combinations, experiments, flags, schemes

ROOT = Path(__file__).parents[2]
TEXTS = {
    "docs/combinations.md": combinations.page,
    "docs/flags.md": flags.reference_page,
    "docs/experiments.md": experiments.experiments_page,
    "docs/schemes.md": schemes.page,
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_committed_file_is_current(name: str) -> None:
    assert (ROOT / name).read_text(encoding="utf-8") == TEXTS[name]()
