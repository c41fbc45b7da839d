"""The grid of fine-tuning on GLUE, bad configurations, and flags that it refuses."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from ode_transformer.cli import main
from ode_transformer.glue.glue_command import CONFIG
from ode_transformer.glue.grid import read_config
from ode_transformer.support.errors import UserError


def test_the_papers_grid() -> None:
    points = read_config(CONFIG).points()
    assert len(points) == 2 * 2 * 2 * 3 * 4
    assert points[0] == {"weight-decay": 0.0, "batch-size": 16, "lr": 5e-5, "max-epoch": 3, "seed": 200}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"more": 1}, "more: Extra inputs are not permitted"),
        ({"grid": {"lr": [0.1]}}, "grid: batch-size is missing"),
        ({"symmetric": ["MRPC", "CoLA"]}, "symmetric.1: CoLA is no task with pairs"),
        ({"batch-size": [0]}, "grid.batch-size.0: 0 is not a whole number above 0"),
        ({"batch-size": [True]}, "grid.batch-size.0: True is not a whole number"),
        ({"max-epoch": [3, 2.5]}, "grid.max-epoch.1: 2.5 is not a whole number"),
        ({"seed": [1.0]}, "grid.seed.0: 1.0 is not a whole number"),
        ({"lr": ["5e-5"]}, "grid.lr.0: '5e-5' is text: YAML reads 5.0e-5 as a number, 5e-5 not"),
        ({"lr": [True]}, "grid.lr.0: True is not a number above 0"),
        ({"lr": [-0.1]}, "grid.lr.0: -0.1 is not a number above 0"),
        ({"lr": [float("nan")]}, "grid.lr.0: nan is not a number above 0"),
        (
            {"train": {"max-update": 5}},
            "train.max-update: --max-update is set for each run, by the grid",
        ),
        ({"train": {"weight-decay": 0.1}}, "train.weight-decay: --weight-decay is set for each run"),
        (
            {"grid": {"user-dir": ["plugin"], "batch-size": [4], "lr": [0.1], "max-epoch": [1], "seed": [1]}},
            "grid.user-dir: --",
        ),
        ({"train": {"user-dir": "plugin"}}, "train.user-dir: --user-dir is set for each run"),
    ],
)
def test_a_wrong_config(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    config = yaml.safe_load(CONFIG.read_text())
    inner = not change.keys() & {"grid", "train", "more", "symmetric"}
    config = config | ({"grid": config["grid"] | change} if inner else change)
    (tmp_path / "glue.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(UserError, match=rf"glue\.yaml: {message}"):
        read_config(tmp_path / "glue.yaml")


def test_the_hint_on_numbers_is_true(tmp_path: Path) -> None:
    assert yaml.safe_load("[5e-5, 5.0e-5]") == ["5e-5", 5e-5]


@pytest.mark.parametrize(
    "flags", ["--batch-size 8", "--max-epoch=9", "--update-freq 2", "--max-update 5", "--seed 3", "--weight-d 0"]
)
def test_flags_that_distinguish_runs_are_refused(tmp_path: Path, capsys, flags: str) -> None:
    assert main(["analyse", "glue", "finetune", "--model", "none.pt", "--", *flags.split()]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{flags.split()[0]} after --: --" in line
    read_config(CONFIG).check_flags(["--fp16", "--lr-scheduler", "fixed", "-s", "x", "--batch-size-valid", "9"])
