"""The table in the documentation is current, and right where the answer is known from the equations."""

from pathlib import Path

from generator.combinations import page

ROOT = Path(__file__).parents[2]


def test_the_committed_page_is_up_to_date() -> None:
    assert (ROOT / "docs" / "combinations.md").read_text(encoding="utf-8") == page()
