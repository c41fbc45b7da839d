"""A stranger's checkpoint runs no code, whichever way it is opened; what we and fairseq write is read as it was."""

import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from changed_checkpoints import Intruder, as_args, rewrite
from doors import FAIRSEQS_DOORS, open_model

from ode_transformer.checkpoints.reading import load_checkpoint
from ode_transformer.checkpoints.stored_sizes import MAX_TENSORS
from ode_transformer.cli import main
from ode_transformer.decoding.trained_model import TrainedModel
from ode_transformer.support.errors import UserError

State = dict[str, Any]
OUR_ROUTES = ("translate", *FAIRSEQS_DOORS[:1])
ROUTES = ("translate", *FAIRSEQS_DOORS)
FAIRSEQS_VERIFY = ("verify",) if FAIRSEQS_DOORS else ()  # of a criterion that fairseq checks


@pytest.fixture
def folder(untrained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(untrained.parent, tmp_path / "model"))


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


def in_model(state: State, **options: Any) -> None:
    vars(state["cfg"]["model"]).update(options)


def in_plain_model(state: State, **options: Any) -> None:
    """The model's options without argparse.Namespace, which stock fairseq reads, too."""
    state["cfg"]["model"] = vars(state["cfg"]["model"]) | options


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: in_plain_model(state, _name="lstm", arch="lstm"), "architecture lstm is none of"),
        (lambda state: state["cfg"]["task"].update(_name="speech_to_text"), "task speech_to_text is "),
    ],
)
@pytest.mark.parametrize("route", ["verify", *FAIRSEQS_DOORS[:1]])
def test_other_models_are_refused(folder: Path, route: str, change: Callable[[State], None], message: str) -> None:
    rewrite(folder, change)
    with pytest.raises(UserError, match=rf"model\.pt: (refused: )?{message}"):
        open_model(route, folder)


@pytest.mark.parametrize("route", ROUTES)
def test_a_folder_of_code_that_a_checkpoint_names_is_not_imported(folder: Path, tmp_path: Path, route: str) -> None:
    trace, plugin = tmp_path / "trace", tmp_path / "plugin"
    plugin.mkdir()
    (plugin / "__init__.py").write_text(f"open({str(trace)!r}, 'w')")
    rewrite(folder, lambda state: in_model(state, user_dir=str(plugin)))
    rewrite(folder, lambda state: state["cfg"]["common"].update(user_dir=str(plugin)))
    assert open_model(route, folder)
    assert not trace.exists()


@pytest.mark.parametrize("route", OUR_ROUTES)
def test_a_shard_beside_the_file_is_not_loaded_in_its_place(folder: Path, route: str) -> None:
    """fairseq would take model-shard0.pt in place of model.pt, so verify refuses it."""
    other = torch.load(folder / "model.pt", weights_only=False)
    for tensor in other["model"].values():
        if tensor.is_floating_point():
            tensor.fill_(7.0)
    torch.save(other, folder / "model-shard0.pt")
    loaded = open_model(route, folder)
    model: Any = loaded.model if isinstance(loaded, TrainedModel) else loaded.models[0]  # type: ignore[attr-defined]
    assert not model.encoder.layer_norm.weight.eq(7.0).any()
    with pytest.raises(UserError, match=r"fairseq would read model-shard0\.pt in its place"):
        open_model("verify", folder)


# Options as old and new versions of fairseq write them.
ACCEPTED = {
    "adam_betas": "(0.9, 0.98)",
    "data": "runs (copy)/f(x)",
    "adaptive_softmax_cutoff": None,
    "update_freq": [1],
    "model_overrides": "{'dropout': 0.1}",
    "eval_bleu_args": '{"beam": 5}',
    "novelty": "open('x')",  # nobody reads it
    "stop_time_hours": float("inf"),
}


def test_real_options_are_accepted(folder: Path) -> None:
    """A criterion may share its name with an architecture."""
    rewrite(folder, lambda state: state["cfg"].update(criterion={"_name": "masked_lm", "tpu": False}))
    for route in (*ROUTES, *FAIRSEQS_VERIFY):
        assert open_model(route, folder)
    rewrite(folder, lambda state: as_args(state, **ACCEPTED))
    assert vars(load_checkpoint(folder / "model.pt")["args"]).items() >= ACCEPTED.items()
    for route in (*ROUTES, "verify"):
        assert open_model(route, folder)


@pytest.mark.parametrize("command", ["verify", "average"])
def test_parameters_that_are_no_numbers_are_refused(folder: Path, command: str, capsys) -> None:
    rewrite(folder, lambda state: state["model"]["encoder.layer_norm.weight"][:1].fill_(float("nan")))
    output = ["--output", str(folder / "average.pt")] if command == "average" else []
    assert main(["checkpoint", command, str(folder / "model.pt"), *output]) != 0
    assert "model.pt: encoder.layer_norm.weight holds NaN or infinity" in capsys.readouterr().err


def settings_without_end(state: State) -> None:
    """A few bytes in the file."""
    name = next(name for name in state["model"] if name.endswith("_extra_state"))
    state["model"][name] = torch.zeros(1, dtype=torch.uint8).expand(10**9)


LARGE: dict[str, Callable[[State], object]] = {
    "refused: option encoder_layers is 10{30}, more than 1,000": lambda state: in_model(state, encoder_layers=10**30),
    "refused: option ode_steps is 10{9}, more than 1,000": lambda state: in_model(state, ode_steps=10**9),
    "refused: option max_source_positions is ": lambda state: in_model(state, max_source_positions=10**9),
    "refused: a table of 262,144 positions": lambda state: in_model(
        state, max_source_positions=2**18, encoder_embed_dim=2**13
    ),
    "refused: its options describe far more parameters": lambda state: in_model(state, encoder_embed_dim=2**16),
    "refused: .*_extra_state has more than": settings_without_end,
}


@pytest.mark.parametrize("message", LARGE)
@pytest.mark.parametrize("route", OUR_ROUTES)
def test_a_small_file_does_not_occupy_the_machine(folder: Path, route: str, message: str) -> None:
    rewrite(folder, LARGE[message])
    with pytest.raises(UserError, match=message):
        open_model(route, folder)
    if "far more" not in message:  # which is said where a model is built
        with pytest.raises(UserError, match=message):
            load_checkpoint(folder / "model.pt")


def test_more_tensors_than_any_model_has_are_refused_unread(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "many.pt", "w") as archive:
        for number in range(MAX_TENSORS + 1):
            archive.writestr(f"many/data/{number}", "")
    with pytest.raises(UserError, match="refused: it holds more than 30,000 tensors"):
        load_checkpoint(tmp_path / "many.pt")
