"""The page of flags and the list of architectures are those that the parser and the registry make."""

from pathlib import Path

from generator.architectures import architecture_lists
from generator.flags import reference_page

ROOT = Path(__file__).parents[2]


def test_the_committed_page_is_up_to_date() -> None:
    assert (ROOT / "docs" / "flags.md").read_text(encoding="utf-8") == reference_page()


def test_the_list_of_architectures_is_that_of_the_registry() -> None:
    assert (ROOT / "configs" / "architectures.txt").read_text(encoding="utf-8") == architecture_lists()
