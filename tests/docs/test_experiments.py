"""The page of experiments lists every table and figure, and what it refers to exists."""

import pytest
from generator.experiments import distinguishing_settings, read_papers, score_commands

from ode_transformer.lab.recipes.options import find_recipe, recipe_names
from ode_transformer.lab.recipes.recipe import read_recipe
from ode_transformer.lab.studies import study_names

PAPERS = read_papers()


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.title)
def test_every_table_and_figure_is_listed(paper) -> None:
    names = {row.name.partition(",")[0] for row in paper.rows}
    assert {name for name in names if name.startswith("Table ")} == {f"Table {n + 1}" for n in range(paper.tables)}
    assert {name for name in names if name.startswith("Figure ")} == {f"Figure {n + 1}" for n in range(paper.figures)}
    assert all(bool(row.command) != (row.state == "drawing") for row in paper.rows)


def test_published_results_belong_to_listed_tables() -> None:
    """A recipe's ``Li et al. 2022, Table 1`` is a row of the paper whose title ends so."""
    listed = {
        (paper.title.rpartition("(")[2][:-1], row.name.partition(",")[0]) for paper in PAPERS for row in paper.rows
    }
    authors = {author for author, _ in listed}
    tables = {entry.table for name in recipe_names() for entry in read_recipe(find_recipe(name)).expected}
    own = {tuple(table.split(", ")) for table in tables if table.split(", ")[0] in authors}
    assert own
    assert own <= listed


def test_settings_tell_the_systems_of_a_table_apart() -> None:
    lines = list(score_commands(read_recipe(find_recipe("cnn_dm")), "cnn_dm"))
    shown = [line for line in lines if line.startswith("#   ")]
    assert shown[1] == "#   encoder-ode-scheme rk2, ode-function increment, ode-coefficients tableau"
    assert len(set(shown)) == len(shown) == len(lines) / 3 == 7


def test_few_settings_are_shown_and_none_that_adds_nothing() -> None:
    systems = [{"a": 1, "b": 1, "c": 1}, {"a": 1, "b": 2, "c": 1}, {"a": 2, "b": 3, "c": 1}, {"a": 2, "b": 3, "d": 0}]
    assert distinguishing_settings(systems) == ["b", "c"]
    assert distinguishing_settings(systems[:1] * 2) == []


def test_studies_exist() -> None:
    assert {row.study for paper in PAPERS for row in paper.rows if row.study} <= set(study_names())
