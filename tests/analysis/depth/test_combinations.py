"""The table in the documentation is the one that the predicate makes."""

from pathlib import Path

from ode_transformer.analysis.depth.combinations import KINDS, OTHERS, SCHEMES, WEIGHTS, page
from ode_transformer.nn import DepthChoice, refusal

ROOT = Path(__file__).parents[3]


def test_the_committed_page_is_up_to_date() -> None:
    assert (ROOT / "docs" / "combinations.md").read_text(encoding="utf-8") == page()


def test_each_cell_is_what_the_predicate_says() -> None:
    rows = [line.strip("| ").split(" | ") for line in page().splitlines() if line.startswith("| ")]
    cells = {(row[0], column): row[column] for row in rows for column in range(1, len(row))}
    for margin, header in ((SCHEMES, WEIGHTS), (OTHERS, KINDS)):
        for name, part in margin.items():
            for column, other in enumerate(header.values(), 1):
                assert (cells[name, column] == "yes") == (refusal(DepthChoice(**part | other)) is None)
