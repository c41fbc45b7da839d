"""The page of experiments: current, complete, and each of its commands composes."""

import re
import shlex
from pathlib import Path

import pytest
from generator.experiments import DOCS, experiments_page, read_papers

from ode_transformer.cli import main
from ode_transformer.lab.recipes.options import find_recipe, recipe_names
from ode_transformer.lab.recipes.recipe import read_recipe
from ode_transformer.lab.studies import study_names

PAPERS = read_papers()
ROWS = [row for paper in PAPERS for row in paper.rows]
PAGE = (DOCS / "experiments.md").read_text(encoding="utf-8")
TABLES, _, SCORES = PAGE.partition("## Every published score")


def scripts_in(text: str, pattern: str) -> list[str]:
    return list(dict.fromkeys(re.findall(pattern, text, re.MULTILINE)))


def test_the_page_is_current() -> None:
    assert experiments_page() == PAGE, "python docs/generate.py"


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


def test_studies_and_result_pages_exist() -> None:
    assert {row.study for row in ROWS if row.study} <= set(study_names())
    assert [row.results for row in ROWS if row.results and not (DOCS / row.results).is_file()] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        *scripts_in(TABLES, r"`(bash scripts/(?:reproduce|study|prepare)\.sh \w[^`]*)`"),
        *scripts_in(SCORES, r"^bash scripts/reproduce\.sh .*$"),
    ],
)
def test_every_command_composes(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On eight GPUs: what it prints ends in a command, of the evaluation or of an analysis, or of preparation."""
    _, script, *words = shlex.split(command)
    split = words.index("--") if "--" in words else len(words)
    gpus = [] if "prepare" in script else ["--gpus", "8"]
    run = [Path(script).stem, *words[:split], "--dry-run", *gpus, "--output", str(tmp_path), *words[split:]]
    assert main(run) == 0
    shown = [line for line in capsys.readouterr().out.splitlines() if line.startswith("+ ")]
    assert shown
    assert gpus == [] or any("fairseq-train" in line for line in shown)
