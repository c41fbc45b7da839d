"""The table in the documentation is current, and right where the answer is known from the equations."""

from pathlib import Path

import pytest
from generator.combinations import KINDS, OTHERS, SCHEMES, WEIGHTS, page

ROOT = Path(__file__).parents[2]
KNOWN = {  # row, column: whether they go together
    ("`euler`", "`gate`"): False,  # one evaluation has nothing to weigh
    ("`midpoint`", "`gate`"): False,  # a weight of 0 is no start for a gate
    ("`heun`", "`gate`"): True,
    ("`rk4`", "`ones`"): True,
    ("`repeat`", "`scalar`"): False,
    ("`leapfrog`", "`gate`"): False,
    ("function `layer-output`", "several (`rk4`)"): True,
    ("normalize before `False`", "one stage (`euler`)"): False,  # LN(y + F(y)) has no increment F
    ("history `dlcl`", "several, learned"): True,
    ("history `dlcl`", "`leapfrog`, `multistep`, `dlcl-increments`"): False,  # they read earlier layers themselves
    ("relative values", "several (`rk4`)"): False,
    ("stage parameters `separate`", "one stage (`euler`)"): False,
    ("layerdrop `0.1`", "one stage (`euler`)"): False,
    ("hidden `linear`", "`dlstm`"): True,
}


def test_the_committed_page_is_up_to_date() -> None:
    assert (ROOT / "docs" / "combinations.md").read_text(encoding="utf-8") == page()


@pytest.mark.parametrize(("row", "column"), KNOWN)
def test_what_is_known_to_go_together(row: str, column: str) -> None:
    """All other combinations are built, or refused with their reason, in tests/nn/test_scheme.py."""
    header = list(WEIGHTS if row in SCHEMES else KINDS)
    rows = [line.strip("| ").split(" | ") for line in page().splitlines() if line.startswith("| ")]
    (cells,) = (cells for cells in rows if cells[0] == row and len(cells) == 1 + len(header))
    assert row in SCHEMES | OTHERS
    assert (cells[1 + header.index(column)] == "yes") == KNOWN[row, column]
