"""``ode-transformer verify`` accepts what trainings write and refuses what runs code in fairseq's own commands."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.checkpoint_utils import load_model_ensemble_and_task

import ode_transformer.models  # noqa: F401  (registers the architectures)
from ode_transformer.cli import main


@pytest.fixture
def model(untrained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(untrained.parent, tmp_path / "model")) / "model.pt"


def test_a_checkpoint_of_ours_is_described(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parameters = torch.load(model)["model"]
    numbers = sum(tensor.numel() for tensor in parameters.values())
    assert main(["verify", str(model), str(model)]) == 0
    line = f"{model}: ode_transformer_rk2_tiny, {numbers:,} numbers in {len(parameters)} tensors; runs no code\n"
    assert capsys.readouterr().out == 2 * line


def plain_model(state: dict[str, Any], **options: Any) -> None:
    state["cfg"]["model"] = vars(state["cfg"]["model"]) | options


PLAIN_ATTACKS: dict[str, Callable[[dict[str, Any], str], None]] = {
    "fconv": lambda state, code: plain_model(
        state, _name="fconv_iwslt_de_en", arch="fconv_iwslt_de_en", encoder_layers=code
    ),
    "transformer": lambda state, code: plain_model(
        state, _name="transformer", arch="transformer", adaptive_softmax_cutoff=code
    ),
}


@pytest.mark.parametrize("attack", PLAIN_ATTACKS.values(), ids=PLAIN_ATTACKS)
def test_what_fairseq_runs_is_refused(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], attack: Callable[[dict[str, Any], str], None]
) -> None:
    """These files run their code in fairseq's own loading, with our plugin or without (docs/security.md)."""
    state, trace = torch.load(model), tmp_path / "trace"
    attack(state, f"[(32, 3)] if open({str(trace)!r}, 'w') else 0")
    torch.save(state, model)
    assert main(["verify", str(model)]) == 2
    assert capsys.readouterr().err.startswith(f"ode-transformer verify: error: {model}: refused: ")
    assert not trace.exists()
    with pytest.raises(Exception):  # noqa: B017  (in which way it fails does not matter here)
        load_model_ensemble_and_task([str(model)], {"data": str(model.parent)})
    assert trace.exists()


@pytest.mark.parametrize("name", [["a"], {}, "", 3], ids=str)
def test_names_of_other_types_are_refused(model: Path, capsys: pytest.CaptureFixture[str], name: object) -> None:
    state = torch.load(model)
    plain_model(state, _name=name)
    torch.save(state, model)
    assert main(["verify", str(model)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_shard_beside_the_file_is_named(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(model, model.with_name("model-shard0.pt"))
    assert main(["verify", str(model)]) == 2
    assert "fairseq would read model-shard0.pt in its place" in capsys.readouterr().err


def test_more_layers_than_the_file_has_are_refused(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """fairseq's own commands would build them, layer by layer."""
    state = torch.load(model)
    plain_model(state, _name="transformer", arch="transformer", encoder_layers=10**9)
    torch.save(state, model)
    assert main(["verify", str(model)]) == 2
    message = f"{model}: refused: option encoder_layers: 1,000,000,000, but the file has 2 layers in a stack\n"
    assert capsys.readouterr().err == f"ode-transformer verify: error: {message}"
