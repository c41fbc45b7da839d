"""A checkpoint from a stranger: fairseq's commands refuse it before its code could run."""

import os
from pathlib import Path

import pytest
import torch
from commands_for_tests import USER_DIR, Text, run, training

from ode_transformer.support.checkpoint_file import load_checkpoint

pytestmark = pytest.mark.slow


class Intruder:
    """Unpickled without care, it creates the file ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch '{self.path}'",)


@pytest.mark.parametrize("command", ["generate", "train"])
def test_a_foreign_object_is_refused_and_does_not_run(text: Text, trained: Path, tmp_path: Path, command: str) -> None:
    trace, path = tmp_path / "trace", tmp_path / "checkpoint_last.pt"
    state = load_checkpoint(trained / "checkpoint_last.pt")
    state["extra_state"]["stranger"] = Intruder(trace)
    torch.save(state, path)
    arguments = {
        "generate": (text.data, "--user-dir", USER_DIR, "--cpu", "--path", path),
        "train": training(text, tmp_path, "ode_transformer_rk2_tiny", 41),
    }
    done = run(command, *arguments[command])
    assert done.returncode != 0
    assert "unsupported GLOBAL posix.system" in done.stderr  # os.system's own name
    assert not trace.exists()
    torch.load(path, weights_only=False)
    assert trace.exists()  # without care the file is dangerous indeed
