"""A study of small models: trained by the real commands, killed half-way, and told in tables, plots and a page."""

import csv
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import yaml
from commands_for_tests import COMMANDS, ENVIRONMENT
from programs_here import start_programs_here
from recipes_for_tests import Runner

from ode_transformer.cli import main
from ode_transformer.lab.studies import paired_comparison

GRID = {"lr": [0.02, 1e-9], "dropout attention-dropout": [0.2]}
STUDY = {
    **{"title": "Toy", "source": "nowhere", "seeds": [1, 2]},
    "systems": [
        {"name": "Residual", "arch": "ode_transformer_euler_tiny"},
        {"name": "twice", "arch": "ode_transformer_euler_tiny", "depth": 2, "control": "compute"},
    ],
    "analyses": {"norms": "curves {runs} --what gradient-norm --output {output}.png"},
}


def kill_command(words: Sequence[object], moment: Callable[[], bool]) -> None:
    """Start ``ode-transformer`` and kill it, with all that it has started, as soon as ``moment`` returns true."""
    command = [COMMANDS / "ode-transformer", *map(str, words)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=ENVIRONMENT, start_new_session=True)
    while process.poll() is None and not moment():
        time.sleep(0.01)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


@pytest.mark.slow
def test_killed_half_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """Both trials of each system with the grid's seed; then the other seed with the better value; no run twice."""
    start_programs_here(monkeypatch)
    monkeypatch.setattr(paired_comparison, "SAMPLES", 100)
    run, path = Runner("multi30k_en_de", tmp_path, monkeypatch), tmp_path / "toy.yaml"
    run.change("train", max_update=2, log_samples=0)
    path.write_text(yaml.safe_dump(STUDY | {"settings": {"here": {"recipe": str(run.path), "tuning": {"grid": GRID}}}}))
    assert run("prepare") == 0
    words = list(map(str, ["study", path, "--output", run.output, "--workers", 1, "--gpus", 0]))
    results = run.output / "studies" / "toy-here"

    def runs() -> set[Path]:
        return {path.parents[1] for path in run.data.glob("*/checkpoints/checkpoint[0-9]*.pt")}

    kill_command(words, lambda: len(runs()) == 2)
    killed = runs()
    assert not (results / "results.md").exists()
    words += ["--raw", str(run.raw)]
    assert main(words) == 0
    assert len(runs()) == 6
    assert killed < runs()
    assert sum("1e-09" in folder.name for folder in runs()) == 2
    assert all("attention-dropout-0.2" in folder.name for folder in runs())
    with open(results / "results.csv", newline="") as file:
        rows = [(row["system"], row["seed"], row["updates"]) for row in csv.DictReader(file)]
    assert sorted(rows) == [(system, seed, "2") for system in ("Residual", "twice") for seed in "12"]
    table = (results / "results.md").read_text()
    assert table.count("| dropout 0.2, lr 0.02 |") == 3  # head and choice of each system
    for part in ("Equal updates, equal compute", "Paired test over sentences"):
        assert f"## {part}" in table
    assert len((results / "validations.csv").read_text().splitlines()) > 4
    for name in ("results", "norms"):
        assert (results / f"{name}.png").stat().st_size > 10_000
    page = (results / "report.html").read_text()
    assert "Differences to the first system" in page
    assert page.count('<th scope="row">twice') >= 2  # among the systems and their differences
    capsys.readouterr()
    assert main(words) == 0
    output = capsys.readouterr().out
    assert "== train: already done" in output
    assert "\n+ " not in output.partition("=== Residual, seed 1")[2]  # no command is run again
