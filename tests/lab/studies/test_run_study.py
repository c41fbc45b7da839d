"""A study that processes share, and what its table is made of."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from ode_transformer.lab.recipes import run_experiment, series, workflow
from ode_transformer.lab.studies import find_study, run_study
from ode_transformer.lab.studies.run_study import claim_results
from ode_transformer.lab.studies.study import Row, Setting, StudySystem, Tuning
from ode_transformer.lab.studies.study_runs import StudyRuns
from ode_transformer.support.errors import LockedError, UserError


def test_trials_of_another_process_are_looked_at_again(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """One trial is locked for three rounds, one fails, one is trained at once."""
    calls: list[str] = []
    names, looks = ["locked", "broken", "free", "complete"], [True, True, False]

    def train(experiment: SimpleNamespace) -> None:
        trial = experiment.folder
        calls.append(trial)
        print(f"{trial} trained")
        if calls == ["locked"]:
            raise LockedError("runs/locked: another process is training here")
        if trial == "broken":
            raise UserError("broken")

    monkeypatch.setattr(run_experiment, "train", train)
    monkeypatch.setattr(run_experiment, "is_trained", lambda trial: trial.folder == "complete")
    monkeypatch.setattr(series, "is_locked", lambda folder: looks.pop(0))
    monkeypatch.setattr(workflow, "prepare", lambda data, options: None)
    waited: list[float] = []
    monkeypatch.setattr(series.time, "sleep", waited.append)
    runs = SimpleNamespace(
        setting=Setting(recipe="a", tuning=Tuning(grid={"lr": [1.0, 2.0, 3.0, 4.0]})),
        data=None,
        options=SimpleNamespace(dry_run=False),
        trials=lambda row: {f"lr {value}": SimpleNamespace(folder=name) for value, name in enumerate(names, start=1)},
        chosen_trial=lambda row: "lr 3.0",
    )
    row = Row(StudySystem(name="RK2", arch="a"))
    assert run_study.tune(cast(StudyRuns, runs), [row]) == ["RK2, lr 2, seed 1: broken"]
    assert calls == ["locked", "broken", "free", "locked"]
    assert waited == [series.POLL_SECONDS] * 2
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1] == "RK2: lr 3.0"
    assert printed[-4:-1] == ["", "=== RK2, lr 1, seed 1", "locked trained"]
    assert sum(line.endswith("another process is training here: later") for line in printed) == 1


def test_a_study_of_the_same_name_replaces_no_results(tmp_path: Path) -> None:
    own, folder = tmp_path / "mine" / "coefficients.yaml", tmp_path / "results" / "coefficients-g2p"
    claim_results(folder, find_study("coefficients"))
    claim_results(folder, find_study("coefficients"))
    with pytest.raises(UserError, match="has the results of another study, coefficients; choose another --output"):
        claim_results(folder, own)
