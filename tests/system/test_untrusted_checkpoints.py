"""A checkpoint from a stranger: fairseq's commands refuse it before its code could run."""

import os
import re
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from commands_for_tests import USER_DIR, Text, run, succeed, train, training

from ode_transformer.checkpoints.reading import load_checkpoint
from ode_transformer.decoding.trained_model import load_trained_model

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


CODE = "[(32, 3)] if open('{}', 'w') else 0"


def options_of_convolutions(state: dict[str, Any], code: str) -> None:
    arch = "fconv_iwslt_de_en"
    state.update(cfg=None, args=Namespace(arch=arch, task="translation", source_lang="en", target_lang="de"))
    vars(state["args"]).update(encoder_layers=code, decoder_layers="[(32, 3)]", decoder_attention="True")


def options_of_ours(state: dict[str, Any], code: str) -> None:
    state["cfg"]["model"].adaptive_softmax_cutoff = code


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (options_of_convolutions, "architecture fconv_iwslt_de_en is refused"),
        (options_of_ours, "option adaptive_softmax_cutoff: .* is Python code, which is refused"),
    ],
)
@pytest.mark.parametrize("command", ["generate", "train"])
def test_code_in_an_option_does_not_run(
    text: Text,
    trained: Path,
    tmp_path: Path,
    command: str,
    change: Callable[[dict[str, Any], str], None],
    message: str,
) -> None:
    trace, path = tmp_path / "trace", tmp_path / "checkpoint_last.pt"
    state = load_checkpoint(trained / "checkpoint_last.pt")
    change(state, CODE.format(trace))
    torch.save(state, path)
    arguments = {
        "generate": (text.data, "--user-dir", USER_DIR, "--cpu", "--path", path),
        "train": training(text, tmp_path, "ode_transformer_rk2_tiny", 41),
    }
    done = run(command, *arguments[command])
    assert done.returncode != 0
    assert re.search(rf"UserError: .*{message}", done.stderr)
    assert not trace.exists()


@pytest.mark.parametrize("arch", ["transformer_iwslt_de_en", "ode_transformer_rk4_tiny"])
def test_what_fairseq_writes_is_accepted(text: Text, tmp_path: Path, arch: str) -> None:
    """Training, resuming and decoding with fairseq's own Transformer and with ours."""
    train(text, tmp_path, arch, 2)
    checkpoint = train(text, tmp_path, arch, 4)
    assert load_trained_model(checkpoint, text.data)
    out = succeed("generate", text.data, "--user-dir", USER_DIR, "--cpu", "--path", checkpoint, "--max-len-b", 5)
    assert "H-0\t" in out
