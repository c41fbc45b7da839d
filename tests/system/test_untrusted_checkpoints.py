"""A checkpoint from a stranger: fairseq's commands refuse it before its code could run."""

from pathlib import Path

import pytest
import torch
from checkpoint_for_tests import Intruder
from commands_for_tests import USER_DIR, Text, run, training

from ode_transformer.checkpoints.reading import load_checkpoint

pytestmark = pytest.mark.slow

CODE = "[(32, 3)] if open('{}', 'w') else 0"


@pytest.mark.parametrize(
    ("command", "message"),
    [("train", "refused: it holds posix.system"), ("generate", "refused: option adaptive_softmax_cutoff is ")],
)
def test_code_does_not_run(text: Text, learned: Path, tmp_path: Path, command: str, message: str) -> None:
    trace, path = tmp_path / "trace", tmp_path / "checkpoint_last.pt"
    state = load_checkpoint(learned)
    if command == "train":
        state["extra_state"]["stranger"] = Intruder(trace)
    else:
        state["cfg"]["model"].adaptive_softmax_cutoff = CODE.format(trace)
    torch.save(state, path)
    arguments = {
        "generate": (text.data, "--user-dir", USER_DIR, "--cpu", "--path", path),
        "train": training(text, tmp_path, "ode_transformer_rk2_tiny", 1000),
    }
    done = run(command, *arguments[command])
    assert done.returncode != 0
    assert message in done.stderr
    assert not trace.exists()
