"""Curves of a real run of fairseq-train: its log, its TensorBoard files and its series by layer."""

import csv
import json
from pathlib import Path

import pytest
from commands_for_tests import BATCHES, NO_DROPOUT, Text, training
from commands_for_tests import run as run_command
from PIL import Image

from ode_transformer.analysis.curves.training_log import read_events, read_log, read_run
from ode_transformer.cli.command import main

pytestmark = pytest.mark.slow

UPDATES = 2 * BATCHES + 2
OPTIONS = (*NO_DROPOUT, "--log-interval", 2, "--validate-interval-updates", 4)


@pytest.fixture(scope="module")
def run(text: Text, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two epochs in the layout of scripts/train.sh, stopped within the first epoch and between them."""
    folder = tmp_path_factory.mktemp("runs") / "rk2"
    folder.mkdir()
    for until in (6, BATCHES, UPDATES):
        flags = training(text, folder / "checkpoints", "ode_transformer_rk2_tiny", until, *OPTIONS)
        flags = tuple(flag for flag in flags if flag != "--disable-validation")
        words = (*flags, "--tensorboard-logdir", folder / "tensorboard", "--log-depth-interval", 4)
        process = run_command("train", *words)
        assert process.returncode == 0, process.stderr
        with open(folder / "train.log", "a") as log:
            log.write(process.stdout + process.stderr)
    return folder


def test_log_and_tensorboard_have_the_same_points(run: Path) -> None:
    log, events = read_log(run / "train.log"), read_events(run / "tensorboard")
    assert read_run(run) == log
    assert read_run(run / "tensorboard") == events
    assert [(p.split, p.updates) for p in log] == [(p.split, p.updates) for p in events]
    for logged, event in zip(log, events, strict=True):
        for name in ("loss", "nll_loss", "gnorm", "minutes"):
            expected = getattr(logged, name)
            assert getattr(event, name) == (expected and pytest.approx(expected, rel=1e-5)), (name, logged)
        assert dict(event.depth) == pytest.approx(dict(logged.depth), rel=1e-5)
        assert event.epochs == pytest.approx(logged.epochs, abs=0.001) == logged.updates / BATCHES
        assert event.epoch == logged.epoch
    splits = [p.split for p in log]
    assert splits == ["train"] * 9 + ["train-epoch"] * 3 + ["valid"] * 6
    assert [p.updates for p in log if p.split == "train-epoch"] == [8, 16, 18]
    assert [p.epochs for p in log if p.split == "valid"] == [0.5, 0.75, 1.0, 1.5, 2.0, 2.25]
    assert [p.updates for p in log if p.split == "train" and p.depth] == [4, 8, 12, 16]


def test_the_perplexity_is_fairseqs_own(run: Path) -> None:
    lines = (run / "train.log").read_text().splitlines()
    reports = [json.loads(line[line.index("{") :]) for line in lines if '"valid_ppl"' in line]
    points = [point for point in read_log(run / "train.log") if point.split == "valid"]
    assert [point.perplexity for point in points] == pytest.approx([float(r["valid_ppl"]) for r in reports], rel=1e-2)


def test_figures_and_tables(run: Path, tmp_path: Path) -> None:
    panels = ("--what", "perplexity", "gradient-norm", "depth/*/gradient_norm", "--by", "updates", "epochs")
    for folder in (run, run / "tensorboard"):
        picture, table = tmp_path / "a.png", tmp_path / "a.csv"
        assert main(["analyse", "curves", str(folder), *panels, "--output", str(picture), "--csv", str(table)]) == 0
        assert (31, 119, 180) in Image.open(picture).convert("RGB").getdata()  # the first curve
        rows = list(csv.DictReader(table.open()))
        assert len(rows) == 18
        weights = [float(row["depth/encoder/1/weight_1"]) for row in rows if row["depth/encoder/1/weight_1"]]
        assert len(weights) >= 6
        assert all(0 < weight < 1 for weight in weights)


def test_by_default_the_log_has_no_series_by_layer(text: Text, tmp_path: Path) -> None:
    keys, losses = [], []
    for name, flags_by_layer in (("off", ()), ("on", ("--log-depth-interval", 2))):
        log = tmp_path / f"{name}.log"
        flags = training(
            text, tmp_path / name, "ode_transformer_rk2_tiny", 4, *OPTIONS, *flags_by_layer, "--log-file", log
        )
        process = run_command("train", *flags)
        assert process.returncode == 0, process.stderr
        reports = [json.loads(line) for line in log.read_text().splitlines() if line.startswith('{"epoch')]
        keys.append({key for report in reports for key in report})
        losses.append([(report.get("loss"), report.get("gnorm")) for report in reports])
    assert losses[0] == losses[1]
    assert len(keys[1] - keys[0]) > 8
    assert not any("depth" in key for key in keys[0])
