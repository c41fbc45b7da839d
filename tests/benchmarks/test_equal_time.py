"""The comparison at equal time chooses by validation and never by the test set."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import equal_time
import pytest

from ode_transformer.lab.metrics.metric import Score

RK2, FAIRSEQ = "RK2", "fairseq's transformer"


def test_settings_are_chosen_by_validation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Trainings are stood in for: a setting that is worse in validation has the better score on the test set."""
    trainings: list[list[Any]] = []

    def train_system(args: Any, task: str, system: str, setting: str, seed: int) -> SimpleNamespace:
        trainings.append([system, setting, seed])
        (tmp_path / str(len(trainings))).mkdir()
        log = tmp_path / str(len(trainings)) / "train.log"
        loss = 4 if setting == "--lr 0.005" else 5
        reports = {
            "train_inner": {"epoch": 1, "update": 1.0, "loss": loss, "num_updates": 9, "wall": 60},
            "valid": {"epoch": 1, "valid_loss": loss, "valid_num_updates": 9},
        }
        log.write_text("".join(f"x | INFO | {kind} | {json.dumps(values)}\n" for kind, values in reports.items()))
        score = Score("BLEU", 10.0 * loss + seed, "", "", 1)
        return SimpleNamespace(
            folder=log.parent,
            data=SimpleNamespace(folder=tmp_path),
            train_command=lambda: ["fairseq-train"],
            scores={"BLEU": score},
        )

    monkeypatch.setattr(equal_time, "train_system", train_system)
    monkeypatch.setattr(equal_time.run_experiment, "evaluate", lambda experiment: experiment.scores)
    words = ["--tasks", "text", "--systems", RK2, FAIRSEQ, "--seeds", "1,2", "--settings", "", "--lr 0.005"]
    assert equal_time.main([*words, "--output", str(tmp_path)]) == 0
    with open(tmp_path / "equal_time.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["system"], row["setting"], row["seed"], row["value"]) for row in rows] == [
        (system, "--lr 0.005", seed, value)
        for system in (RK2, FAIRSEQ)
        for seed, value in (("1", "41.00"), ("2", "42.00"))
    ]
    assert f"| text | BLEU | {FAIRSEQ} | --lr 0.005 | 41.50 ± 0.71 | 2 |" in capsys.readouterr().out


def test_the_clock_of_cpu_time_stands_still_in_sleep() -> None:
    code = "import time; start = time.time(); time.sleep(0.5); print(time.time() - start)"
    environment = os.environ | {"PYTHONPATH": str(Path(equal_time.__file__).parent / "cpu_clock")}
    slept = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert float(slept.stdout) < 0.1
