"""Options of a stranger's checkpoint: nothing of them runs, and what we and fairseq write is accepted."""

from __future__ import annotations

import argparse
import shutil
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint_for_tests import make_language_model, rewrite
from fairseq.checkpoint_utils import load_model_ensemble_and_task

from ode_transformer.decoding.trained_model import load_trained_model
from ode_transformer.models import ODETransformerModel
from ode_transformer.models.language_model import ODELanguageModel
from ode_transformer.models.saved_model import check_sizes
from ode_transformer.models.saved_options import check_saved_options
from ode_transformer.numerics import tableau
from ode_transformer.support import plain_options
from ode_transformer.support.checkpoint_file import load_checkpoint
from ode_transformer.support.errors import UserError

State = dict[str, Any]
OUR_ROUTES = ("load_trained_model", "from_pretrained")
ROUTES = (*OUR_ROUTES, "fairseq")


@pytest.fixture
def folder(untrained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(untrained.parent, tmp_path / "model"))


@pytest.fixture(scope="session")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_language_model(tmp_path_factory.mktemp("language_model"))


def load(route: str, folder: Path) -> object:
    """Loads the folder's model.pt by one of the ways that users take."""
    if route == "fairseq":  # as fairseq-generate --user-dir
        return load_model_ensemble_and_task([str(folder / "model.pt")], {"data": str(folder)})
    is_language_model = (folder / "dict.txt").exists()
    if route == "from_pretrained":
        model = ODELanguageModel if is_language_model else ODETransformerModel
        return model.from_pretrained(str(folder), "model.pt")
    return load_trained_model(folder / "model.pt", folder, language_model=is_language_model)


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


# How the code comes into the file.
ATTACKS: dict[str, Callable[[State, str], object]] = {
    "args of fconv": lambda state, code: as_args(state, **convolutions(code)),
    "cfg.model of fconv": lambda state, code: in_model(state, _name="fconv_iwslt_de_en", **convolutions(code)),
    "cfg.model of fconv by _name": lambda state, code: in_model(
        state, **convolutions(code) | {"arch": "ode_transformer_rk2_tiny", "_name": "fconv_iwslt_de_en"}
    ),
    "our args": lambda state, code: as_args(state, adaptive_softmax_cutoff=code),
    "our cfg.model": lambda state, code: in_model(state, adaptive_softmax_cutoff=code),
    "our plain cfg.model": lambda state, code: in_plain_model(state, adaptive_softmax_cutoff=code),
    "in a list": lambda state, code: in_model(state, adaptive_softmax_cutoff=[code]),
    "fairseq's transformer": lambda state, code: in_model(
        state, _name="transformer", arch="transformer", adaptive_softmax_cutoff=code
    ),
    "fairseq's transformer, option without prefix": lambda state, code: in_model(
        state, _name="transformer", arch="transformer", xformers_att_config=code
    ),
    "fairseq's transformer, option in a group": lambda state, code: in_model(
        state, _name="transformer", arch="transformer", encoder={"xformers_att_config": code}
    ),
    "betas of Adam": lambda state, code: in_model(state, adam_betas=code),
    "betas of Adam in args": lambda state, code: as_args(state, adam_betas=code),
    "an option that nobody knows": lambda state, code: in_model(state, novelty=code),
}
# With names of Python's internals, and without.
CODES = {"import": "__import__('os').system('touch {}') or [(32, 3)]", "open": "[(32, 3)] if open('{}', 'w') else 0"}


def check_refused(folder: Path, route: str, attack: Callable[[State, str], object], code: str, message: str) -> None:
    trace = folder / "trace"
    rewrite(folder, lambda state: attack(state, code.format(trace)))
    with pytest.raises(UserError, match=message):
        load(route, folder)
    assert not trace.exists()


@pytest.mark.parametrize("code", CODES.values(), ids=CODES)
@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
@pytest.mark.parametrize("route", ROUTES)
def test_code_in_an_option_does_not_run(
    folder: Path, route: str, attack: Callable[[State, str], object], code: str
) -> None:
    check_refused(folder, route, attack, code, r"refused|option \w+: ")


def test_without_the_check_the_code_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of these tests are dangerous indeed."""
    trace = folder / "trace"
    rewrite(folder, lambda state: as_args(state, **convolutions(CODES["open"].format(trace))))
    monkeypatch.setattr(plain_options, "_checks", [])
    with pytest.raises(RuntimeError):  # the parameters do not fit the convolutions
        load("fairseq", folder)
    assert trace.exists()


# Without a namespace, nothing of ours runs in fairseq's loading before it builds: only our own ways refuse these.
PLAIN_ATTACKS: dict[str, Callable[[State, str], object]] = {
    "fconv": lambda state, code: in_plain_model(state, _name="fconv_iwslt_de_en", **convolutions(code)),
    "transformer": lambda state, code: in_plain_model(
        state, _name="transformer", arch="transformer", adaptive_softmax_cutoff=code
    ),
    "criterion": lambda state, code: state["cfg"].update(criterion={"_name": "ctc", "wer_args": code}),
    "optimizer": lambda state, code: state["cfg"].update(optimizer={"_name": "adam", "adam_betas": code}),
}


@pytest.mark.parametrize("attack", PLAIN_ATTACKS.values(), ids=PLAIN_ATTACKS)
@pytest.mark.parametrize("route", OUR_ROUTES)
def test_code_in_a_plain_group_does_not_run(folder: Path, route: str, attack: Callable[[State, str], object]) -> None:
    check_refused(folder, route, attack, CODES["open"], r"model\.pt: refused: ")


@pytest.mark.parametrize("option", ["character_filters", "adaptive_input_cutoff", "adaptive_softmax_cutoff"])
@pytest.mark.parametrize("route", OUR_ROUTES)
def test_code_in_a_language_model_does_not_run(language_model: Path, tmp_path: Path, route: str, option: str) -> None:
    def attack(state: State, code: str) -> None:
        more = {"character_embeddings": True, "adaptive_input": True, option: code}
        in_plain_model(state, _name="transformer_lm", arch="transformer_lm", **more)

    folder = Path(shutil.copytree(language_model.parent, tmp_path / "model"))
    check_refused(folder, route, attack, CODES["open"], f"refused: option {option}: ")


def in_task(state: State, **options: Any) -> None:
    state["cfg"]["task"].update(options)


@pytest.mark.parametrize(
    ("change", "option", "route"),
    [
        *((change, "activation_fn", route) for change in (as_args, in_model, in_plain_model) for route in ROUTES),
        *((in_task, "eval_bleu_args", route) for route in OUR_ROUTES),
    ],
)
def test_the_environment_is_not_read(folder: Path, change: Callable[..., None], option: str, route: str) -> None:
    rewrite(folder, lambda state: change(state, **{option: "${oc.env:HOME}"}))
    with pytest.raises(UserError, match=rf"option {option}: '\$\{{oc\.env:HOME\}}' asks for another value"):
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


@pytest.mark.parametrize(
    ("option", "value", "described"),
    [
        ("encoder_layers", "2", "a number"),
        ("encoder_layers", [2], "a number"),
        ("dropout", "0.1", "a number"),
        ("share_all_embeddings", "yes", "true or false"),
        ("encoder_ode_scheme", "no-such-scheme", "one of euler,"),
        ("encoder_ode_scheme", ["euler"], "one of euler,"),
        ("activation_fn", "evaluate", "one of relu,"),
        ("lr", ["0.1"], "a list"),
        ("adam_betas", "nothing", "a list of numbers"),
    ],
)
def test_a_value_of_another_type_is_refused(folder: Path, option: str, value: object, described: str) -> None:
    rewrite(folder, lambda state: in_model(state, **{option: value}))
    with pytest.raises(UserError, match=f"option {option}: .* is not {described}"):
        load("fairseq", folder)


ENDLESS: list[object] = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        *(
            ("novelty", value, "option novelty: ")
            for value in (torch.ones(1), {1, 2}, torch.Size([1]), 10**30, float("nan"), [[[[[[[[[[[[1]]]]]]]]]]]])
        ),
        ("novelty", ENDLESS, "option novelty: more values than any option has"),
        ("novelty", ["f(1)" * 25_000] * 11, "option novelty: more text than all options together have"),
        *((name, 1, ".* is not the name of an option") for name in ("__class__", "a${b}", 3, "")),
    ],
    ids=lambda value: str(value)[:80],
)
def test_options_are_names_and_plain_values(tmp_path: Path, name: object, value: object, message: str) -> None:
    options = Namespace(arch="x")
    options.__dict__[name] = value  # type: ignore[index]
    torch.save({"args": options, "model": {}}, tmp_path / "a.pt")
    with pytest.raises(UserError, match=rf"a\.pt: refused: {message}"):
        load_checkpoint(tmp_path / "a.pt")


def test_options_cannot_change_after_they_were_checked(folder: Path, tmp_path: Path) -> None:
    """A pickle may go on with an object that it has built: with its list, or by building it for a second time."""
    layers: list[object] = [1]
    options = Namespace(arch="ode_transformer_rk2_tiny", adaptive_softmax_cutoff=layers)
    torch.save({"args": options, "model": {}, "later": layers}, tmp_path / "a.pt")
    state = torch.load(tmp_path / "a.pt")
    state["later"].append("code")
    assert state["args"].adaptive_softmax_cutoff == [1]
    assert type(state["args"]) is argparse.Namespace


def test_empty_options_are_written_as_fairseqs(tmp_path: Path) -> None:
    torch.save({"args": Namespace(), "model": {}}, tmp_path / "a.pt")
    torch.save(torch.load(tmp_path / "a.pt"), tmp_path / "b.pt")
    assert b"ode_transformer" not in (tmp_path / "b.pt").read_bytes()


@pytest.mark.parametrize("route", OUR_ROUTES)
def test_the_file_that_was_checked_is_loaded(folder: Path, route: str) -> None:
    """fairseq would take model-shard0.pt in place of model.pt."""
    other = torch.load(folder / "model.pt")
    for tensor in other["model"].values():
        if tensor.is_floating_point():
            tensor.fill_(7.0)
    torch.save(other, folder / "model-shard0.pt")
    loaded = load(route, folder)
    model = loaded[0] if isinstance(loaded, tuple) else loaded.models[0]  # type: ignore[attr-defined]
    assert not model.encoder.layer_norm.weight.eq(7.0).any()


def test_an_archive_is_not_unpacked(tmp_path: Path) -> None:
    (tmp_path / "model.tar.gz").write_bytes(b"")
    with pytest.raises(UserError, match=r"model\.tar\.gz: not a folder; download and unpack"):
        ODETransformerModel.from_pretrained(str(tmp_path / "model.tar.gz"))


# Options as old and new versions of fairseq write them.
ACCEPTED = {
    "adam_betas": "(0.9, 0.98)",
    "lr": [0.0005],
    "data": "runs (copy)/f(x)",
    "save_dir": "runs(1)",
    "adaptive_softmax_cutoff": None,
    "share_all_embeddings": True,
    "raw_text": False,
    "lazy_load": False,
    "min_lr": 1e-9,
    "ddp_backend": "no_c10d",
    "lr_shrink": 0.1,
    "update_freq": [1],
    "model_overrides": "{'dropout': 0.1}",
    "eval_bleu_args": '{"beam": 5}',
    "encoder_layers_to_keep": None,
    "novelty": "learnable_dense",
    "scoring": "sacrebleu",
    "max_tokens_valid": 4096,
    "patience": -1,
    "stop_time_hours": float("inf"),
}


def test_real_options_are_accepted(folder: Path) -> None:
    """A criterion may share its name with an architecture."""
    rewrite(folder, lambda state: state["cfg"].update(criterion={"_name": "masked_lm", "tpu": False}))
    for route in ROUTES:
        assert load(route, folder)
    rewrite(folder, lambda state: as_args(state, **ACCEPTED))
    assert vars(load_checkpoint(folder / "model.pt")["args"]).items() >= ACCEPTED.items()
    for route in ROUTES:
        assert load(route, folder)


def test_schemes_that_are_registered_later_are_accepted(untrained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = load_checkpoint(untrained)["cfg"]["model"]
    check_saved_options(vars(options))
    monkeypatch.setattr(tableau, "_BY_NAME", dict(tableau._BY_NAME))
    tableau.register_tableau(replace(tableau.get_tableau("heun"), name="mine", aliases=()))
    check_saved_options(vars(options) | {"encoder_ode_scheme": "mine"})
    with pytest.raises(UserError, match="encoder_ode_scheme: 'theirs' is not one of"):
        check_saved_options(vars(options) | {"encoder_ode_scheme": "theirs"})


@pytest.mark.parametrize("positions", [1024, 8192, 100_000])
def test_a_large_dictionary_takes_no_positions_away(positions: int) -> None:
    parameters = {"encoder.embed_tokens.weight": torch.empty(300_000, 512, device="meta")}
    options = {"encoder_embed_dim": 512, "decoder_embed_dim": 512, "max_source_positions": positions}
    check_sizes(options, parameters)
    with pytest.raises(ValueError, match="1,000,000 positions of 512 numbers are out of range"):
        check_sizes(options | {"max_source_positions": 10**6}, parameters)
