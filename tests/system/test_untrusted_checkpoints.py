"""A checkpoint from a stranger: fairseq's commands refuse it before its code could run."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from changed_checkpoints import Intruder, rewrite
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


def test_fairseq_generate_refuses_in_one_line(untrained: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(untrained.parent, tmp_path / "model")
    path = rewrite(folder, lambda state: setattr(state["cfg"]["model"], "encoder_ffn_embed_dim", 2**16))
    words = [
        Path(sys.executable).with_name("fairseq-generate"),
        folder,
        "--path",
        path,
        "--cpu",
        "-s",
        "en",
        "-t",
        "de",
    ]
    done = subprocess.run([*words, "--user-dir", USER_DIR], capture_output=True, text=True, check=False)
    refusal = f"fairseq-generate: error: {path}: refused: its options describe far more parameters than it has"
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, refusal)
    assert "Traceback" not in done.stderr
