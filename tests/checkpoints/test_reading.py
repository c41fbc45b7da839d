"""A stranger's checkpoint runs no code, whichever way it is opened; what we and fairseq write is read as it was."""

from __future__ import annotations

import argparse
import os
import pickle
import shutil
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint_for_tests import make_language_model, rewrite
from fairseq.checkpoint_utils import load_model_ensemble_and_task

from ode_transformer.checkpoints import reading
from ode_transformer.checkpoints.reading import load_checkpoint
from ode_transformer.cli import main
from ode_transformer.decoding.trained_model import load_trained_model
from ode_transformer.models import ODELanguageModel, ODETransformerModel
from ode_transformer.models.verification import verify_checkpoint
from ode_transformer.support.errors import UserError

State = dict[str, Any]
OUR_ROUTES = ("load_trained_model", "from_pretrained")
ROUTES = (*OUR_ROUTES, "fairseq")


@pytest.fixture
def folder(untrained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(untrained.parent, tmp_path / "model"))


def load(route: str, folder: Path) -> object:
    """Loads the folder's model.pt by one of the ways that users take."""
    if route == "verify":
        return verify_checkpoint(folder / "model.pt")
    if route == "fairseq":  # as fairseq-generate --user-dir
        return load_model_ensemble_and_task([str(folder / "model.pt")], {"data": str(folder)})
    is_language_model = (folder / "dict.txt").exists()
    if route == "from_pretrained":
        model = ODELanguageModel if is_language_model else ODETransformerModel
        return model.from_pretrained(str(folder), "model.pt")
    return load_trained_model(folder / "model.pt", folder, language_model=is_language_model)


class Intruder:
    """Unpickled without care, it creates the file ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch '{self.path}'",)


@pytest.mark.parametrize("form", ["archive", "before torch 1.6", "pickle"])
def test_an_object_does_not_run(tmp_path: Path, form: str) -> None:
    path, trace = tmp_path / "evil.pt", tmp_path / "trace"
    state = {"model": {}, "extra_state": Intruder(trace)}
    if form == "pickle":
        path.write_bytes(pickle.dumps(state, protocol=2))
    else:
        torch.save(state, path, _use_new_zipfile_serialization=form == "archive")
    with pytest.raises(UserError, match=r"evil\.pt: "):
        load_checkpoint(path)
    assert not trace.exists()
    if form != "pickle":
        torch.load(path, weights_only=False)
        assert trace.exists()  # without care the file is dangerous indeed


def as_args(state: State, **options: Any) -> None:
    """The older form: one namespace with all options."""
    values = {name: value for name, value in vars(state["cfg"]["model"]).items() if name != "_name"}
    values |= {"source_lang": "en", "target_lang": "de"}
    state.update(cfg=None, args=Namespace(**(values | options)))


def in_model(state: State, **options: Any) -> None:
    vars(state["cfg"]["model"]).update(options)


def in_plain_model(state: State, **options: Any) -> None:
    """The model's options without argparse.Namespace, which stock fairseq reads, too."""
    state["cfg"]["model"] = vars(state["cfg"]["model"]) | options


def convolutions(code: str) -> State:
    arch = "fconv_iwslt_de_en"
    return {"arch": arch, "encoder_layers": code, "decoder_layers": "[(32, 3)]", "decoder_attention": "True"}


TRANSFORMER = {"_name": "transformer", "arch": "transformer"}
# How the code comes into the file.
ATTACKS: dict[str, Callable[[State, str], object]] = {
    "args of fconv": lambda state, code: as_args(state, **convolutions(code)),
    "args beside cfg": lambda state, code: state.update(args=Namespace(**convolutions(code))),
    "cfg.model of fconv": lambda state, code: in_model(state, _name="fconv_iwslt_de_en", **convolutions(code)),
    "our args": lambda state, code: as_args(state, adaptive_softmax_cutoff=code),
    "our cfg.model": lambda state, code: in_model(state, adaptive_softmax_cutoff=code),
    "our plain cfg.model": lambda state, code: in_plain_model(state, adaptive_softmax_cutoff=code),
    "option in a group": lambda state, code: in_model(state, **TRANSFORMER, encoder={"xformers_att_config": code}),
    "betas of Adam": lambda state, code: as_args(state, adam_betas=code),
}
# Without a namespace, nothing of ours runs in fairseq's loading before it builds: only our own ways refuse these.
PLAIN_ATTACKS: dict[str, Callable[[State, str], object]] = {
    "plain fconv": lambda state, code: in_plain_model(state, _name="fconv_iwslt_de_en", **convolutions(code)),
    "plain transformer": lambda state, code: in_plain_model(state, **TRANSFORMER, adaptive_softmax_cutoff=code),
    "plain criterion": lambda state, code: state["cfg"].update(criterion={"_name": "ctc", "wer_args": code}),
    "plain optimizer": lambda state, code: state["cfg"].update(optimizer={"_name": "adam", "adam_betas": code}),
}
HOSTILE = [
    pytest.param(route, attack, id=f"{name}-{route}")
    for attacks, routes in ((ATTACKS, ROUTES), (PLAIN_ATTACKS, (*OUR_ROUTES, "verify")))
    for name, attack in attacks.items()
    for route in routes
]
CODE = "[(32, 3)] if open('{}', 'w') else 0"


@pytest.mark.parametrize(("route", "attack"), HOSTILE)
def test_code_in_an_option_does_not_run(folder: Path, route: str, attack: Callable[[State, str], object]) -> None:
    trace = folder / "trace"
    rewrite(folder, lambda state: attack(state, CODE.format(trace)))
    with pytest.raises(UserError, match=r"refused: option \w+ would be evaluated: "):
        load(route, folder)
    assert not trace.exists()


@pytest.mark.parametrize("option", ["character_filters", "adaptive_input_cutoff", "adaptive_softmax_cutoff"])
@pytest.mark.parametrize("route", OUR_ROUTES)
def test_code_in_a_language_model_does_not_run(tmp_path: Path, route: str, option: str) -> None:
    folder, code = make_language_model(tmp_path).parent, CODE.format(tmp_path / "trace")
    more = {"character_embeddings": True, "adaptive_input": True, option: code}
    rewrite(folder, lambda state: in_plain_model(state, _name="transformer_lm", arch="transformer_lm", **more))
    with pytest.raises(UserError, match=f"refused: option {option} would be evaluated"):
        load(route, folder)
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize("attack", [ATTACKS["args of fconv"], *list(PLAIN_ATTACKS.values())[:2]])
def test_without_the_check_the_code_runs(folder: Path, monkeypatch: pytest.MonkeyPatch, attack) -> None:
    """The files of these tests are dangerous indeed, in fairseq's own loading; the plain ones with our plugin, too."""
    monkeypatch.setattr(reading, "EVALUATED_OPTIONS", set())
    rewrite(folder, lambda state: attack(state, CODE.format(folder / "trace")))
    with pytest.raises(Exception):  # noqa: B017  (in which way it fails does not matter here)
        load("fairseq", folder)
    assert (folder / "trace").exists()


@pytest.mark.parametrize("change", [as_args, in_model, in_plain_model])
@pytest.mark.parametrize("route", ROUTES)
def test_the_environment_is_not_read(folder: Path, change: Callable[..., None], route: str) -> None:
    rewrite(folder, lambda state: change(state, activation_fn="${oc.env:HOME}"))
    with pytest.raises(UserError, match=r"option activation_fn would be evaluated: '\$\{oc\.env:HOME\}'"):
        load(route, folder)


def test_options_cannot_change_after_they_were_checked(tmp_path: Path) -> None:
    """A pickle may go on with an object that it has built."""
    layers: list[object] = [1]
    torch.save({"args": Namespace(adaptive_softmax_cutoff=layers), "model": {}, "later": layers}, tmp_path / "a.pt")
    state = torch.load(tmp_path / "a.pt")
    state["later"].append("code")
    assert state["args"].adaptive_softmax_cutoff == [1]
    torch.save(state, tmp_path / "b.pt")
    assert b"ode_transformer" not in (tmp_path / "b.pt").read_bytes()  # for readers without this package
    assert type(load_checkpoint(tmp_path / "b.pt")["args"]) is argparse.Namespace


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: in_plain_model(state, _name="lstm", arch="lstm"), "architecture lstm is none of"),
        (lambda state: state["cfg"]["task"].update(_name="speech_to_text"), "task speech_to_text is not supported"),
    ],
)
@pytest.mark.parametrize("route", ["from_pretrained", "verify"])
def test_other_models_are_refused(folder: Path, route: str, change: Callable[[State], None], message: str) -> None:
    rewrite(folder, change)
    with pytest.raises(UserError, match=rf"model\.pt: refused: {message}"):
        load(route, folder)


@pytest.mark.parametrize("route", ROUTES)
def test_a_folder_of_code_that_a_checkpoint_names_is_not_imported(folder: Path, tmp_path: Path, route: str) -> None:
    trace, plugin = tmp_path / "trace", tmp_path / "plugin"
    plugin.mkdir()
    (plugin / "__init__.py").write_text(f"open({str(trace)!r}, 'w')")
    rewrite(folder, lambda state: in_model(state, user_dir=str(plugin)))
    rewrite(folder, lambda state: state["cfg"]["common"].update(user_dir=str(plugin)))
    assert load(route, folder)
    assert not trace.exists()


@pytest.mark.parametrize("route", OUR_ROUTES)
def test_a_shard_beside_the_file_is_not_loaded_in_its_place(folder: Path, route: str) -> None:
    """fairseq would take model-shard0.pt in place of model.pt, so verify refuses it."""
    other = torch.load(folder / "model.pt")
    for tensor in other["model"].values():
        if tensor.is_floating_point():
            tensor.fill_(7.0)
    torch.save(other, folder / "model-shard0.pt")
    loaded = load(route, folder)
    model = loaded[0] if isinstance(loaded, tuple) else loaded.models[0]  # type: ignore[attr-defined]
    assert not model.encoder.layer_norm.weight.eq(7.0).any()
    with pytest.raises(UserError, match=r"fairseq would read model-shard0\.pt in its place"):
        load("verify", folder)


def test_a_checkpoint_chooses_neither_the_search_nor_files_of_subwords(folder: Path) -> None:
    address = {"_name": "sentencepiece", "sentencepiece_model": "https://example.org/model"}
    rewrite(folder, lambda state: state["cfg"].update(bpe=address, tokenizer={"_name": "space"}))
    rewrite(folder, lambda state: state["cfg"]["generation"].update(sampling=True, replace_unk="/dev/stdin"))
    hub = ODETransformerModel.from_pretrained(folder, "model.pt", beam=2)
    generation = hub.cfg.generation
    assert (generation.sampling, generation.replace_unk, generation.beam) == (False, None, 2)
    assert (hub.cfg.bpe, hub.cfg.tokenizer) == (None, None)
    pieces = ODETransformerModel.from_pretrained(folder, "model.pt", bpe="sentencepiece")
    assert pieces.cfg.bpe.sentencepiece_model == str(folder / "sentencepiece.bpe.model")


# Options as old and new versions of fairseq write them.
ACCEPTED = {
    "adam_betas": "(0.9, 0.98)",
    "data": "runs (copy)/f(x)",
    "adaptive_softmax_cutoff": None,
    "update_freq": [1],
    "model_overrides": "{'dropout': 0.1}",
    "eval_bleu_args": '{"beam": 5}',
    "novelty": "open('x')",  # nobody evaluates it
    "stop_time_hours": float("inf"),
}


def test_real_options_are_accepted(folder: Path) -> None:
    """A criterion may share its name with an architecture."""
    rewrite(folder, lambda state: state["cfg"].update(criterion={"_name": "masked_lm", "tpu": False}))
    for route in (*ROUTES, "verify"):
        assert load(route, folder)
    rewrite(folder, lambda state: as_args(state, **ACCEPTED))
    assert vars(load_checkpoint(folder / "model.pt")["args"]).items() >= ACCEPTED.items()
    for route in (*ROUTES, "verify"):
        assert load(route, folder)


def test_verify_describes_a_checkpoint(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parameters = torch.load(folder / "model.pt")["model"]
    numbers = sum(tensor.numel() for tensor in parameters.values())
    assert main(["checkpoint", "verify", str(folder / "model.pt")]) == 0
    line = f"ode_transformer_rk2_tiny, {numbers:,} numbers in {len(parameters)} tensors; runs no code\n"
    assert capsys.readouterr().out == f"{folder / 'model.pt'}: {line}"
