"""What only a GPU shows of norms that are read late: nothing waits for the GPU, and trainings go as on a CPU."""

import os
import re
import subprocess
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from commands_for_tests import COMMANDS, Text, parameters, training
from fairseq_cli import train as fairseq_train
from trainer_cost import read_options

from ode_transformer.models.late_norm import LateNorm

FUSED = ("--optimizer", "fused_adam", "--criterion", "fused_label_smoothed_cross_entropy", "--cuda-graphs")
HALF = ("--memory-efficient-fp16", "--fp16-init-scale", 2**16, "--fp16-scale-window", 4)
AT_ONCE = ("--stop-time-hours", 0.0166)  # in its last minute a training waits for no number

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def words(text: Text, folder: Path, updates: int, *options: object) -> list[str]:
    """Return the words of a training on a GPU that reports at its end alone."""
    given = training(text, folder, "ode_transformer_rk2_tiny", updates, *FUSED, "--log-interval", 1000, *options)
    return [str(word) for word in given if word != "--cpu"]


def test_nothing_waits_for_the_gpu_until_the_next_backward_pass(
    text: Text, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, read = LateNorm.log, LateNorm.read
    waits, reads = [], []

    def log_and_watch(late: LateNorm, *arguments: Any) -> Any:
        logged = log(late, *arguments)
        torch.cuda.set_sync_debug_mode("warn" if late.unread is not None else "default")
        return logged

    def stop_watching(late: LateNorm) -> None:
        torch.cuda.set_sync_debug_mode("default")
        reads.append(late.unread is not None)
        read(late)

    monkeypatch.setattr(LateNorm, "log", log_and_watch)
    monkeypatch.setattr(LateNorm, "read", stop_watching)
    monkeypatch.setattr(warnings, "showwarning", lambda message, *_, **__: waits.append((len(reads), str(message))))
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        fairseq_train.main(read_options(words(text, tmp_path, 32, "--memory-efficient-fp16", "--no-save")))
    torch.cuda.set_sync_debug_mode("default")
    assert sum(reads) >= 24
    # In the last epoch all shapes have been recorded.
    assert not [message for number, message in waits if number > 24 and "synchroniz" in message]


def test_an_overflow_that_is_read_late_skips_the_updates_that_fairseq_skips(text: Text, tmp_path: Path) -> None:
    logs, models = [], []
    for name, options in {"late": (), "at_once": AT_ONCE}.items():
        command = [COMMANDS / "fairseq-train", *words(text, tmp_path / name, 14, *HALF, *options)]
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
        assert done.returncode == 0, done.stderr[-2000:]
        logs.append(done.stdout + done.stderr)
        models.append(parameters(tmp_path / name / "checkpoint_last.pt"))
    assert ["both are taken again" in log for log in logs] == [True, False]
    scales = [re.findall(r"setting loss scale to: (\S+)", log) for log in logs]
    assert scales[0] == scales[1]
    # An update that is taken again may be replayed where the other training computes it, and they round differently.
    torch.testing.assert_close(*models, rtol=0.05, atol=0.02)
