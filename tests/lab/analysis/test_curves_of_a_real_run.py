"""Curves of a real run of fairseq-train: its log and its series by layer."""

import csv
import json
from pathlib import Path

import pytest
from commands_for_tests import BATCHES, NO_DROPOUT, Text, training
from commands_for_tests import run as run_command
from PIL import Image

from ode_transformer.cli.command import main
from ode_transformer.lab.analysis.training_log import read_log

pytestmark = pytest.mark.slow

UPDATES = BATCHES + 2
OPTIONS = (*NO_DROPOUT, "--log-interval", 2, "--validate-interval-updates", 4)


def test_the_log_is_read_and_drawn(text: Text, tmp_path: Path) -> None:
    """A run in the layout of scripts/train.sh, stopped within the first epoch, at its end and in the second."""
    folder = tmp_path / "rk2"
    folder.mkdir()
    for until in (6, BATCHES, UPDATES):
        flags = training(text, folder / "checkpoints", "ode_transformer_rk2_tiny", until, *OPTIONS)
        flags = tuple(flag for flag in flags if flag != "--disable-validation")
        process = run_command("train", *flags, "--log-depth-interval", 4)
        assert process.returncode == 0, process.stderr
        with open(folder / "train.log", "a") as log:
            log.write(process.stdout + process.stderr)

    points = read_log(folder)
    assert all(point.epochs == pytest.approx(point.updates / BATCHES, abs=0.001) for point in points)
    assert [p.split for p in points] == ["train"] * 5 + ["train-epoch"] * 2 + ["valid"] * 4
    assert [p.updates for p in points if p.split == "train-epoch"] == [8, 10]
    assert [p.epochs for p in points if p.split == "valid"] == [0.5, 0.75, 1.0, 1.25]
    assert [p.updates for p in points if p.split == "train" and p.depth] == [4, 8]

    lines = (folder / "train.log").read_text().splitlines()
    reports = [json.loads(line[line.index("{") :]) for line in lines if '"valid_ppl"' in line]
    perplexities = [point.perplexity for point in points if point.split == "valid"]
    assert perplexities == pytest.approx([float(r["valid_ppl"]) for r in reports], rel=1e-2)

    picture, table = tmp_path / "a.png", tmp_path / "a.csv"
    panel = ("--what", "perplexity", "--by", "epochs", "--output", str(picture), "--csv", str(table))
    assert main(["analyse", "curves", str(folder), *panel]) == 0
    assert (31, 119, 180) in Image.open(picture).convert("RGB").get_flattened_data()  # the first curve
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert len(rows) == 11
    weights = [float(row["depth/encoder/1/weight_1"]) for row in rows if row["depth/encoder/1/weight_1"]]
    assert len(weights) >= 3
    assert all(0 < weight < 1 for weight in weights)
