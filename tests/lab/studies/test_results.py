"""Tables, numbers and plots of runs that were made up."""

import re
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

from ode_transformer.lab.metrics.significance import compare_systems
from ode_transformer.lab.studies.results import PublishedScores, StudyResults, StudyRun
from ode_transformer.lab.studies.study import Axis, Setting, Study, StudySystem

SYSTEMS = [
    StudySystem(name="plain", arch="a"),
    StudySystem(name="deep", arch="a", depth=2, control="compute"),
    StudySystem(name="$new$", arch="b", against=["deep"]),
]
VALUES = {"plain": [10.0, 11.0, 12.0], "deep": [9.0], "$new$": [20.0, 21.0, 22.0]}


def made_up(axis: Axis | None = None) -> StudyResults:
    study = Study(
        title="A question",
        source="A paper, Table 1",
        criterion="The lower one.",
        settings={
            "paper": Setting(recipe="a"),
            "here": Setting(recipe="b", variant="cpu", values=[1, 2] if axis else None),
        },
        seeds=[1, 2, 3],
        axis=axis,
        systems=SYSTEMS,
    )
    runs = [
        StudyRun(row, seed, 1000 * (row.value or 1), 50 if row.system.name == "plain" else 75, 8, 1.25, {"PER": value})
        for row in study.rows("here")
        for seed, value in enumerate(VALUES[row.system.name], 1)
    ]
    return StudyResults(study, "here", runs, {("plain", 0): PublishedScores("a", {"BLEU": 27.0}, 6 if axis else None)})


LAYERS = Axis(name="layers", flags=["encoder-layers"], values=[6, 12])


def test_table() -> None:
    assert str(made_up().pair_table()).splitlines()[2:] == ["| $new$ | deep | +12.00 |"]
    lines = str(made_up().main_table()).splitlines()
    assert lines == [
        "| system | parameters | compute | seeds | PER | difference | BLEU, published for a |",
        "|---|---:|---:|---:|---:|---:|---:|",
        "| plain | 1,000 | 1.00 | 3 | 11.00 ± 1.00 |  | 27.00 |",
        "| deep (control: equal compute) | 1,000 | 1.50 | 1 | 9.00 | -2.00 |  |",
        f"| $new$ | 1,000 | 1.50 | 3 | 21.00 ± 1.00 | {compare_systems(VALUES, 'plain', 'PER')['$new$']} |  |",
    ]


@pytest.mark.parametrize("axis", [None, LAYERS, LAYERS.model_copy(update={"plot": "parameters"})])
def test_written(axis: Axis | None, tmp_path: Path) -> None:
    text = made_up(axis).write(tmp_path / "folder", {"commit": "abc", "command": "bash x"})
    assert (tmp_path / "folder" / "results.md").read_text() == text
    for part in ("# A question", "A paper, Table 1. Here: b, variant cpu.", "Criterion: The lower one."):
        assert part in text
    assert re.search(r"^This table: commit: abc; command: bash x$", text, re.MULTILINE)
    image = matplotlib.image.imread(tmp_path / "folder" / "results.png")[..., :3]
    colours = np.unique((image.reshape(-1, 3) * 255).round().astype(int), axis=0)
    coloured = colours[np.ptp(colours, axis=1) > 60]  # lines and points, not the axes
    assert len(coloured) > 10
