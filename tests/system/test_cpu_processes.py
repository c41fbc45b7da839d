"""Several processes of the CPU: they train one model together, or are refused."""

import subprocess
from pathlib import Path

import pytest
import torch
from commands_for_tests import COMMANDS, ENVIRONMENT, Text, parameters, training
from forked_commands import run_quickly
from recipes_for_tests import Runner

pytestmark = pytest.mark.slow


def test_two_processes_train_as_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Runner("multi30k_en_de", tmp_path, monkeypatch)
    with monkeypatch.context() as patch:
        run_quickly(patch)
        assert run("prepare") == 0
    run.change("train", max_update=4, dropout=0.0, attention_dropout=0.0, activation_dropout=0.0)
    models = []
    for processes in (1, 2):
        with monkeypatch.context() as patch:
            if processes == 1:
                run_quickly(patch)  # torchrun is no command of ours
            assert run("train", "--processes", processes) == 0
        folder = run.data / "ode_transformer_rk2_tiny"
        log = (folder / "train.log").read_text(encoding="utf-8")
        assert f"'distributed_world_size': {processes}" in log
        models.append(parameters(folder / "checkpoints" / "checkpoint_last.pt"))
        folder.rename(tmp_path / str(processes))
    one, two = models
    # Each update sums the same gradients in another order.
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=1e-3, atol=1e-5)


def test_processes_that_know_nothing_of_each_other_are_refused(text: Text, tmp_path: Path) -> None:
    words = [COMMANDS / "torchrun", "--standalone", "--nproc-per-node=2", "--no-python", COMMANDS / "fairseq-train"]
    command = [*words, *training(text, tmp_path / "run", "ode_transformer_rk2_tiny", 2)]
    finished = subprocess.run(list(map(str, command)), env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
    assert finished.returncode != 0
    assert "torchrun has started 2 processes" in finished.stderr
    assert not list((tmp_path / "run").glob("*.pt"))
