"""Checkpoints that no training wrote: each ends in one line, quickly, whichever way it is opened."""

from __future__ import annotations

import os
import shutil
import time
import zipfile
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint_for_tests import rewrite

from ode_transformer.cli import main
from ode_transformer.decoding.trained_model import load_trained_model
from ode_transformer.decoding.translate import load_hub
from ode_transformer.models import ODETransformerModel
from ode_transformer.support.checkpoint_file import load_checkpoint
from ode_transformer.support.errors import UserError

State = dict[str, Any]
NAME = "encoder.layer_norm.weight"


@pytest.fixture
def folder(untrained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(untrained.parent, tmp_path / "model"))


def put(**parts: object) -> Callable[[State], None]:
    return lambda state: state.update(parts)


def put_in_cfg(**parts: object) -> Callable[[State], None]:
    return lambda state: state["cfg"].update(parts)


def put_option(**options: object) -> Callable[[State], None]:
    return lambda state: vars(state["cfg"]["model"]).update(options)


def put_tensor(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[State], None]:
    return lambda state: state["model"].update({NAME: change(state["model"][NAME])})


def quantised(tensor: torch.Tensor) -> torch.Tensor:
    return torch.quantize_per_tensor(tensor, 0.1, 0, torch.qint8)


BROKEN_STRUCTURE: dict[str, Callable[[State], None]] = {
    "args is a dict": put(args={"arch": "ode_transformer_rk2_tiny"}, cfg=None),
    "args is a text": put(args="ode_transformer_rk2_tiny"),
    "cfg is a list": put(cfg=[1]),
    "cfg is a text": put(cfg="model"),
    "cfg is a number": put(cfg=3),
    "extra_state is None": put(extra_state=None),
    "optimizer_history is None": put(optimizer_history=None),
    "optimizer_history is empty": put(optimizer_history=[]),
    "optimizer_history holds no dicts": put(optimizer_history=[3]),
    "num_updates is a text": put(optimizer_history=[{"num_updates": "3"}]),
    "num_updates is negative": put(optimizer_history=[{"num_updates": -1}]),
    "num_updates has 300 digits": put(optimizer_history=[{"num_updates": 10**300}]),
    "task_state is a number": put(task_state=3),
    "model is a list": put(model=[torch.ones(1)]),
    "a parameter's name is a number": lambda state: state["model"].update({3: torch.ones(1)}),
    "cfg.model is a text": put_in_cfg(model="ode_transformer_rk2_tiny"),
    "cfg.task is a list": put_in_cfg(task=["translation"]),
    "an option is a tensor": put_option(dropout=torch.ones(1)),
    "an option of 31 digits": put_option(encoder_layers=10**30),
    "interpolation in a group": put_in_cfg(common={"seed": "${oc.env:HOME}"}),
    "sparse": put_tensor(lambda tensor: tensor.to_sparse()),
    "compressed rows": put_tensor(lambda tensor: tensor.reshape(2, -1).to_sparse_csr()),
    "quantised": put_tensor(quantised),
    "without data": put_tensor(lambda tensor: tensor.to("meta")),
    "complex": put_tensor(lambda tensor: tensor.to(torch.complex64)),
    "eight bits of floating point": put_tensor(lambda tensor: tensor.to(torch.float8_e4m3fn)),
    "a number repeated a billion times": put_tensor(lambda tensor: tensor[:1].expand(10**9)),
    "one tensor under a thousand names": lambda state: state["model"].update(
        {f"copy{number}": state["model"]["decoder.embed_tokens.weight"] for number in range(1000)}
    ),
}
# These are whole checkpoints, of which no model can be built.
UNUSABLE_MODELS: dict[str, Callable[[State], None]] = {
    "no options": put(args=None, cfg=None),
    "no options at all": lambda state: state.pop("cfg"),
    "empty args": put(args=Namespace(), cfg=None),
    "empty cfg": put(cfg={}),
    "cfg.model is None": put_in_cfg(model=None),
    "cfg.model is empty": put_in_cfg(model=Namespace()),
    "cfg.task is None": put_in_cfg(task=None),
    "a billion layers": put_option(encoder_layers=10**9),
    "negative layers": put_option(encoder_layers=-1),
    "a wide model": put_option(encoder_embed_dim=2**16, decoder_embed_dim=2**16, encoder_ffn_embed_dim=2**20),
    "a width of zero": put_option(encoder_embed_dim=0, decoder_embed_dim=0),
    "no heads": put_option(encoder_attention_heads=0),
    "positions in words": put_option(tokens_per_sample="many"),
    "positions in a list": put_option(max_positions=[1, 2]),
    "a billion positions": put_option(max_source_positions=10**9),
    "a distance of a billion": put_option(max_relative_positions=10**9),
    "NaN": put_tensor(lambda tensor: tensor * torch.nan),
    "infinite": put_tensor(lambda tensor: tensor / 0),
    "a parameter is missing": lambda state: state["model"].pop(NAME),
    "a parameter has another shape": put_tensor(lambda tensor: tensor[1:].clone()),
    "no parameters": put(model={}),
}


def build(path: Path) -> object:
    return load_trained_model(path, path.parent, "en", "de")


def pretrained(path: Path) -> object:
    return ODETransformerModel.from_pretrained(path.parent, path.name)


CASES = [
    pytest.param(change, load, pattern, id=f"{name}-{load.__name__}")
    for changes, loads, pattern in (
        (BROKEN_STRUCTURE, (load_checkpoint, pretrained), r"model\.pt: .+"),
        (UNUSABLE_MODELS, (build, pretrained), ".+"),
    )
    for name, change in changes.items()
    for load in loads
]


@pytest.mark.parametrize(("change", "load", "pattern"), CASES)
def test_one_line_and_soon(folder: Path, change, load: Callable[[Path], object], pattern: str) -> None:
    path, start = rewrite(folder, change), time.monotonic()
    with pytest.raises(UserError, match=pattern) as caught:
        load(path)
    assert "\n" not in str(caught.value)
    assert time.monotonic() - start < 10


@pytest.mark.parametrize("load", [build, pretrained])
def test_memory_is_not_taken_for_more_than_the_file_has(
    folder: Path, monkeypatch: pytest.MonkeyPatch, load: Callable[[Path], object]
) -> None:
    path = rewrite(folder, put_option(encoder_ffn_embed_dim=10_000))
    monkeypatch.setattr("ode_transformer.models.saved_model.SPARE_NUMBERS", 0)
    with pytest.raises(UserError, match="its options describe a model that is larger than the one in the file"):
        load(path)


@pytest.mark.parametrize("change", [BROKEN_STRUCTURE["cfg is a list"], UNUSABLE_MODELS["NaN"]])
def test_commands_print_one_line(folder: Path, capsys: pytest.CaptureFixture[str], change) -> None:
    path = str(rewrite(folder, change))
    for words in (
        ["coefficients", str(folder), "--path", path],
        ["average", path, "--output", str(folder / "mean.pt")],
        ["translate", str(folder), "--path", path, "--input", str(folder / "dict.en.txt")],
    ):
        assert main(words) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"ode-transformer {words[0]}: error: {path}: ")
        assert error.count("\n") == 1


def test_neither_a_pipe_nor_a_device_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.pt")
    for path in (tmp_path / "a.pt", "/dev/zero"):
        with pytest.raises(UserError, match=f"{path}: not a regular file"):
            load_checkpoint(path)


def test_a_folder_and_a_loop_of_links_are_errors_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in (".", "loop"):
        with pytest.raises(OSError, match="directory|symbolic links") as caught:
            load_checkpoint(tmp_path / name)
        assert caught.value.filename


@pytest.mark.parametrize(
    ("compressed", "message"), [("", "refused: its parts are compressed"), ("data/0", "broken or truncated")]
)
def test_compressed_parts_are_not_unpacked(tmp_path: Path, compressed: str, message: str) -> None:
    """4 MB that become 4 GB, if all parts are compressed; one alone is damage."""
    torch.save({"model": {"w": torch.zeros(10**6)}}, tmp_path / "whole.pt")
    with zipfile.ZipFile(tmp_path / "whole.pt") as whole, zipfile.ZipFile(tmp_path / "a.pt", "w") as bomb:
        for entry in whole.infolist():
            kind = zipfile.ZIP_DEFLATED if entry.filename.endswith(compressed) else zipfile.ZIP_STORED
            bomb.writestr(entry.filename, whole.read(entry), kind)
    assert (tmp_path / "a.pt").stat().st_size < 10**5
    with pytest.raises(UserError, match=rf"a\.pt: {message}"):
        load_checkpoint(tmp_path / "a.pt")


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_of_many_steps_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zipped: bool) -> None:
    monkeypatch.setattr("ode_transformer.support.checkpoint_schema.MAX_PICKLE_STEPS", 1000)
    torch.save({"model": {}, "more": list(range(2000))}, tmp_path / "a.pt", _use_new_zipfile_serialization=zipped)
    with pytest.raises(UserError, match=r"a\.pt: refused: its names and options are more than any checkpoint has"):
        load_checkpoint(tmp_path / "a.pt")


def test_parts_of_other_trainings_are_accepted(tmp_path: Path) -> None:
    """Of an older fairseq, of half precision, and without an optimizer."""
    state = {
        "args": Namespace(arch="transformer", max_positions=1024, raw_text=True),
        "model": {"half": torch.ones(2).half(), "brain": torch.ones(2).bfloat16(), "count": torch.tensor(3)},
        "optimizer_history": [{"criterion_name": "CrossEntropyCriterion", "best_loss": 3.2}],
        "extra_state": {"epoch": 3, "batch_offset": 0, "val_loss": 3.2},
        "last_optimizer_state": None,
    }
    torch.save(state, tmp_path / "a.pt")
    found = load_checkpoint(tmp_path / "a.pt")
    assert found["args"] == state["args"]
    assert found["model"].keys() == state["model"].keys()


def test_a_checkpoint_does_not_change_the_search(folder: Path) -> None:
    path = rewrite(folder, lambda state: state["cfg"]["generation"].update(sampling=True, replace_unk="/dev/stdin"))
    hubs = (
        load_hub(path, folder, "en", "de", batch_size=1, cpu=True),
        ODETransformerModel.from_pretrained(folder, path.name, beam=2),
    )
    for hub in hubs:
        assert (hub.cfg.generation.sampling, hub.cfg.generation.replace_unk) == (False, None)
    assert hubs[1].cfg.generation.beam == 2


def test_a_checkpoint_does_not_name_an_address(folder: Path) -> None:
    address = "https://example.org/model"
    path = rewrite(
        folder, lambda state: state["cfg"].update(bpe={"_name": "sentencepiece", "sentencepiece_vocab": address})
    )
    with pytest.raises(UserError, match=f"option sentencepiece_vocab: '?{address}'? is an address; give a file"):
        ODETransformerModel.from_pretrained(folder, path.name)
