"""The page of flags and architectures is the one that the parser makes."""

import argparse
from pathlib import Path

from generator.flags import default_of, flag_row, reference_page

ROOT = Path(__file__).parents[2]


def test_the_committed_page_is_up_to_date() -> None:
    assert (ROOT / "docs" / "flags.md").read_text(encoding="utf-8") == reference_page()


def test_a_row_shows_values_and_defaults() -> None:
    parser = argparse.ArgumentParser()
    choice = parser.add_argument("--encoder-kind", choices=("one", "two"), help="kind of layers: one, two")
    switch = parser.add_argument("--fast", action="store_true", help="faster | better")
    architectures = {
        "a": {"encoder_kind": "one", "fast": False},
        "b": {"encoder_kind": "two"},
        "c": {"encoder_kind": "one"},
        "without_encoder": {},
    }
    assert flag_row(choice, architectures) == ("`--encoder-kind`", "`one`, `two`", "one; `b`: two", "kind of layers")
    assert flag_row(switch, architectures) == ("`--fast`", "", "off", "faster | better")
    assert default_of(parser.add_argument("--limit", default=1000), architectures) == "1,000"
