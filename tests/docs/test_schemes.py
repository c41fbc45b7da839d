"""The table of schemes is current, and what its columns are made of."""

from pathlib import Path

from generator.schemes import page

from ode_transformer.numerics import RECURRENCES

PAGE = Path(__file__).parents[2] / "docs" / "schemes.md"


def test_the_page_is_current_and_measures_the_orders_that_entries_state() -> None:
    text = page()
    assert PAGE.read_text(encoding="utf-8") == text
    cells = {row[1].strip(" `"): row for row in (line.split("|") for line in text.splitlines()) if len(row) == 10}
    for name, entry in RECURRENCES.items():
        assert cells[name][5].strip() == str(entry.order)
        assert cells[name][6].strip() == (f"{entry.order}.0" if entry.order else "none")
