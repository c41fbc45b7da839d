"""Buckets, and their tables as Markdown, CSV and a plot."""

import csv

import pytest

from ode_transformer.analysis.comparison.bucket_tables import Buckets, BucketTable


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
def table() -> BucketTable:
    columns = {"a": [1 / 3, None, 2.0], "b": [1.0, 0.5, None]}
    return BucketTable("t", ["1-10", "11-20", "21+"], "length", "BLEU", columns, [5, 1, 0], "sentences")


def test_markdown(table: BucketTable) -> None:
    assert table.markdown().splitlines() == [
        "**BLEU**",
        "",
        "| length | sentences | a | b |",
        "|---|---:|---:|---:|",
        "| 1-10 | 5 | 0.33 | 1.00 |",
        "| 11-20 | 1 | – | 0.50 |",
        "| 21+ | 0 | 2.00 | – |",
    ]


def test_csv_has_all_digits(table: BucketTable) -> None:
    head, first, second, _ = csv.reader(table.csv().splitlines())
    assert head == ["length", "sentences", "a", "b"]
    assert float(first[2]) == 1 / 3
    assert second == ["11-20", "1", "", "0.5"]


def test_a_curve_for_each_system_with_counts_below_the_buckets(table: BucketTable) -> None:
    (axes,) = table.figure("data, 6 sentences").axes
    assert axes.get_title() == "data, 6 sentences"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1-10\n(5)", "11-20\n(1)", "21+\n(0)"]
    assert axes.get_xlabel() == "length (sentences in brackets)"
    curves = {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.get_lines()}
    assert curves == {"a": ([0, 2], [1 / 3, 2.0]), "b": ([0, 1], [1.0, 0.5])}
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "b"]


def test_a_bar_for_each_system_of_a_single_row() -> None:
    table = BucketTable("t", ["test"], "test set", "length ratio", {"a": [0.9], "b": [1.1]})
    assert table.can_be_drawn()
    (axes,) = table.figure("data").axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a", "b"]
    assert [bar.get_height() for bar in axes.patches] == [0.9, 1.1]
    assert not BucketTable("t", ["test"], "test set", "length ratio", {"a": [0.9]}).can_be_drawn()
