"""The page of experiments lists every table and figure, and what it refers to exists."""

import pytest
from generator.experiments import read_papers

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


def test_studies_exist() -> None:
    assert {row.study for paper in PAPERS for row in paper.rows if row.study} <= set(study_names())
