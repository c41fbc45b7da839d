"""The page of flags and architectures is the one that the parser makes."""

from pathlib import Path

from generator.flags import reference_page

ROOT = Path(__file__).parents[2]


def test_the_committed_page_is_up_to_date() -> None:
    assert (ROOT / "docs" / "flags.md").read_text(encoding="utf-8") == reference_page()
