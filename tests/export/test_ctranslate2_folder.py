"""A folder of CTranslate2 translates as the checkpoint does, and what CTranslate2 cannot express is refused."""

import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from changed_checkpoints import rewrite
from plain_models import ANY_NAME, PAIRS, make_plain_model, small_plain_model

from ode_transformer.checkpoints.dictionary import Dictionary
from ode_transformer.checkpoints.reading import load_checkpoint
from ode_transformer.cli.command import main
from ode_transformer.decoding.ctranslate2_engine import ExportedModel
from ode_transformer.decoding.trained_model import TrainedModel
from ode_transformer.export import ctranslate2_folder, export_command
from ode_transformer.export.ctranslate2_folder import refusal

Options = dict[str, Any]
NO_HISTORY = {"encoder_layer_history": "none", "decoder_layer_history": "none"}
EULER = {"arch": "ode_transformer_euler_tiny"}
RK2 = {"arch": "ode_transformer_rk2_tiny"}
ONES = {"arch": "ode_transformer_ones_tiny"}
REPEATED: Options = {
    **EULER,
    **NO_HISTORY,
    "encoder_ode_scheme": "repeat4",
    "decoder_ode_scheme": "repeat",
    "ode_stage_parameters": "separate",
    "no_token_positional_embeddings": True,
}
OTHER_PARTS: Options = {
    **EULER,
    **NO_HISTORY,
    "max_relative_positions": 0,
    "encoder_learned_pos": True,
    "activation_fn": "gelu",
    "layernorm_embedding": True,
}
TEXT = "".join(f"{source}\n" for source, _ in PAIRS) + "\n \u200b\nThe 12 unknown Wörter\nA dog </s> sleeps\n"

Command = Callable[..., tuple[str, str]]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command with a text as standard input; returns what it wrote to standard output and standard error."""

    def run(*words: object, text: str = "", status: int = 0) -> tuple[str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert main([str(word) for word in words]) == status
        return capsys.readouterr()

    return run


def make_smooth_model(folder: Path, **options: Any) -> Path:
    """Make a model whose logits differ by much more than the rounding of two libraries does."""
    make_plain_model(folder, **options)

    def scale_layers(state: dict[str, Any]) -> None:
        for name, tensor in state["model"].items():
            if ".layers." in name:
                tensor.mul_(0.35)

    return rewrite(folder, scale_layers)


def export(command: Command, model: Path, *options: object, status: int = 0) -> tuple[str, str]:
    words = ("export", "--to", "ctranslate2", "--path", model, "--output", model.parent / "folder", *options)
    return command(*words, status=status)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported model, its checkpoint in the folder above."""
    folder = tmp_path_factory.mktemp("exported")
    words = (
        "export",
        "--to",
        "ctranslate2",
        "--path",
        make_smooth_model(folder, **ONES),
        "--output",
        folder / "folder",
    )
    assert main([str(word) for word in words]) == 0
    return folder / "folder"


@pytest.mark.parametrize(
    "options", [{**ONES, "relative_values": True, "no_scale_embedding": True}, REPEATED, OTHER_PARTS]
)
def test_greedy_translations_are_those_of_the_checkpoint(options: Options, tmp_path: Path, command: Command) -> None:
    folder = tmp_path / ANY_NAME
    folder.mkdir()
    model = make_smooth_model(folder, **options)
    if options is OTHER_PARTS:  # two vocabularies
        dictionary = folder / "dict.de.txt"
        dictionary.write_text("".join(reversed(dictionary.read_text().splitlines(keepends=True))))
    assert export(command, model)[0].endswith(" MiB\n")
    greedy = ("translate", "--beam", 1, "--max-len-b", 12, "--cpu", "--path")
    (expected, _), (lines, _) = (command(*greedy, path, text=TEXT) for path in (model, folder / "folder"))
    assert lines == expected
    assert lines.split("\n")[-5:-3] == ["", ""]  # lines without text stay empty
    assert len(set(lines.split("\n"))) > 30
    hub = ExportedModel(folder / "folder", None)
    sources = [hub.encode("▁The ▁dog " * count) for count in (1, 20, 2)]
    found = hub.generate(sources, beam=1, max_len_a=2, max_len_b=1)
    assert [len(hypotheses[0]["tokens"]) for hypotheses in found] == [50, 63, 50]


def test_layers_that_repeat_are_stored_once_and_int8_is_smaller(folder: Path, command: Command) -> None:
    saved = load_checkpoint(folder.parent / "model.pt")["model"]
    parameters = {tensor.data_ptr(): tensor.numel() for name, tensor in saved.items() if "version" not in name}
    size = (folder / "model.bin").stat().st_size
    assert size < 4 * sum(parameters.values()) + 40_000  # each layer is applied twice; positions and names besides
    export(command, folder.parent / "model.pt", "--output", folder.parent / "int8", "--quantization", "int8")
    assert (folder.parent / "int8" / "model.bin").stat().st_size < 0.6 * size
    assert ExportedModel(folder.parent / "int8", None).translator.compute_type.startswith("int8")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (RK2, "--ode-coefficients gate, only ones; --encoder-layer-history dlcl, only none"),
        ({**NO_HISTORY, "arch": "ode_transformer_rk4_tiny"}, "--encoder-ode-scheme rk4, only euler, repeat, repeat4"),
        ({"arch": "reformer_fast_tiny"}, "--arch reformer_fast_tiny, only ode_transformer_*"),
    ],
)
def test_what_cannot_be_expressed_is_refused_by_its_flag(options: Options, problem: str) -> None:
    model, here = small_plain_model(**options), Path("model.pt")
    trained = TrainedModel(here, here, model, options, {}, Dictionary(), Dictionary(), ("en", "de"))
    assert f"{refusal(trained)}".startswith(f"CTranslate2 cannot express {problem}")


@pytest.mark.parametrize("to", ["ctranslate2", "huggingface"])
def test_a_folder_with_other_probabilities_is_not_left(to: str, tmp_path: Path, command: Command, monkeypatch) -> None:
    from ode_transformer.export import huggingface_folder  # slow

    model, model_options = make_smooth_model(tmp_path, **ONES), huggingface_folder.exported_options
    monkeypatch.setattr(ctranslate2_folder, "set_layer_norm", set_plain_layer_norm)
    monkeypatch.setattr(huggingface_folder, "exported_options", lambda o: model_options(o) | {"activation_fn": "gelu"})
    error = export(command, model, "--to", to, status=2)[1]
    assert f"--to {to} would write another model: log-probabilities differ by " in error
    assert not (tmp_path / "folder").exists()


@pytest.mark.parametrize("to", ["ctranslate2", "huggingface"])
def test_what_appears_during_an_export_stays(to: str, folder: Path, tmp_path: Path, command: Command) -> None:
    output, check = tmp_path / "folder", export_command.check_scores
    words = ("export", "--to", to, "--path", folder.parent / "model.pt", "--output", output)
    with pytest.MonkeyPatch.context() as patch:
        appear = (lambda *_: output.mkdir(), lambda *_: (output / "mine").touch(), check)
        patch.setattr(export_command, "check_scores", lambda *a: [action(*a) for action in appear])
        error = command(*words, status=2)[1]
    assert f"{output}: has appeared or changed meanwhile and is not replaced" in error
    assert [path.name for path in output.iterdir()] == ["mine"]
    assert list(tmp_path.iterdir()) == [output]


@pytest.mark.parametrize("to", ["ctranslate2", "huggingface"])
def test_files_of_an_export_can_be_read_as_others_of_the_user(to: str, folder: Path, tmp_path: Path) -> None:
    path, usual = folder.parent / "model.pt", tmp_path / "usual"
    usual.touch()
    assert main(["export", "--to", to, "--path", str(path), "--output", str(tmp_path / "folder")]) == 0
    modes = {file.name: file.stat().st_mode for file in (tmp_path / "folder").iterdir()}
    assert modes == dict.fromkeys(modes, usual.stat().st_mode)


def set_plain_layer_norm(specification: Any, module: Any) -> None:
    specification.gamma, specification.beta = (np.full(len(module.weight), number, np.float32) for number in (1, 0))


HARM: dict[str, Callable[[Path], object]] = {
    "shared_vocabulary.json": lambda path: path.write_text(path.read_text().replace("The", "Thf")),
    "sentencepiece.bpe.model": lambda path: path.unlink(),
    "config.json": lambda path: (path.unlink(), os.mkfifo(path)),
    "SHA256SUMS": lambda path: path.unlink(),
    "model.bin": lambda path: (path.parent / "SHA256SUMS").write_text(""),
}


@pytest.mark.parametrize("name", HARM)
def test_a_changed_folder_is_refused(name: str, folder: Path, tmp_path: Path, command: Command) -> None:
    changed = shutil.copytree(folder, tmp_path / "changed")
    HARM[name](changed / name)
    error = command("translate", "--path", changed, text="A dog.\n", status=2)[1]
    assert name in error or name == "model.bin"  # of all files without digest the first is named
    assert error.count("\n") == 1


def test_an_exported_model_is_loaded_without_pytorch(folder: Path) -> None:
    code = (
        "import sys; from ode_transformer.cli import main; "
        f"main(['translate', '--path', {str(folder)!r}]); print({{'torch', 'fairseq'}} & set(sys.modules))"
    )
    output = subprocess.check_output([sys.executable, "-c", code], input="A dog.\n", text=True)
    assert output.endswith("\nset()\n")
