import csv
from pathlib import Path

import pytest
from PIL import Image

from ode_transformer.analysis.comparison.bucket_tables import Buckets, Table


def test_every_number_is_in_the_bucket_that_names_it() -> None:
    lengths = Buckets((10, 20, 50))
    assert lengths.names() == ["1-10", "11-20", "21-50", "51+"]
    assert [lengths.index(n) for n in (1, 10, 11, 20, 21, 50, 51, 1000)] == [0, 0, 1, 1, 2, 2, 3, 3]
    frequencies = Buckets((0, 9, 99), start=0)
    assert frequencies.names() == ["0", "1-9", "10-99", "100+"]
    assert [frequencies.index(n) for n in (0, 1, 9, 10, 99, 100)] == [0, 1, 1, 2, 2, 3]
    assert len(Buckets(())) == 1
    assert Buckets((), start=0).names() == ["0+"]


@pytest.fixture
def table() -> Table:
    columns = {"a": [1 / 3, None, 2.0], "b": [1.0, 0.5, None]}
    return Table("t", ["1-10", "11-20", "21+"], "length", "BLEU", columns, [5, 1, 0], "sentences")


def test_markdown(table: Table) -> None:
    assert table.markdown().splitlines() == [
        "**BLEU**",
        "",
        "| length | sentences | a | b |",
        "| --- | ---: | ---: | ---: |",
        "| 1-10 | 5 | 0.33 | 1.00 |",
        "| 11-20 | 1 | – | 0.50 |",
        "| 21+ | 0 | 2.00 | – |",
    ]


def test_csv_has_all_digits(table: Table) -> None:
    head, first, second, _ = csv.reader(table.csv().splitlines())
    assert head == ["length", "sentences", "a", "b"]
    assert float(first[2]) == 1 / 3
    assert second == ["11-20", "1", "", "0.5"]


@pytest.mark.parametrize("rows", [3, 1])
def test_plots_show_every_column(table: Table, rows: int, tmp_path: Path) -> None:
    for columns in ({}, table.columns):
        cut = {name: column[:rows] for name, column in columns.items()}
        shown = Table("t", table.rows[:rows], "length", "BLEU", {"c": [0.1] * rows} | cut)
        shown.draw(tmp_path / f"{len(columns)}.png")
    one, three = (Image.open(tmp_path / f"{count}.png").convert("RGB") for count in (0, 2))
    first, second, third = (31, 119, 180), (255, 127, 14), (44, 160, 44)  # matplotlib's C0, C1, C2
    found = [{colour for _, colour in image.getcolors(1 << 20)} for image in (one, three)]
    assert first in found[0]
    assert not {second, third} & found[0]
    assert {first, second, third} <= found[1]
