"""fairseq's Python interface: a program that trains, validates, loads, scores and translates.

It loads a checkpoint by its path alone: the dictionaries are in the folder of data that the checkpoint names.
"""

import io
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from commands_for_tests import SMALL, Text, lines_of, parameters
from fairseq import options
from fairseq.checkpoint_utils import load_model_ensemble_and_task
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli import eval_lm, generate, interactive, preprocess, train, validate
from programs_here import output_of

import ode_transformer.models  # noqa: F401  (registers the architectures)
from ode_transformer.checkpoints.reading import load_checkpoint
from ode_transformer.models.admission import admitted_state
from ode_transformer.support.errors import UserError

pytestmark = pytest.mark.slow

DIRECTION = ("--source-lang", "en", "--target-lang", "de")
PAIRS = ("--lang-pairs", "en-de,de-en")
OF_DECODER = SMALL[SMALL.index("--decoder-embed-dim") :]


def parse(parser: Any, data: Path, *words: object) -> Any:
    common = ("--cpu", "--num-workers", "0", "--batch-size", "8", "--log-format", "json")
    return options.parse_args_and_arch(parser, [*map(str, (data, *words)), *common])


def train_here(data: Path, folder: Path, *flags: object) -> Path:
    optimizer = ("--optimizer", "adam", "--lr", 0.01, "--max-update", 4, "--data-buffer-size", 0, "--log-interval", 1)
    words = ("--save-dir", folder, *optimizer, "--dropout", 0, *flags)
    train.main(convert_namespace_to_omegaconf(parse(options.get_training_parser(), data, *words)))
    return folder / "checkpoint_last.pt"


def validate_here(data: Path, path: Path, *task: object) -> None:
    validate.main(parse(options.get_validation_parser(), data, "--path", path, "--valid-subset", "valid", *task))


def translate_here(data: Path, path: Path, *task: object) -> None:
    """Translate a split, then a line and a blank one."""
    words = ("--path", path, "--gen-subset", "valid", "--beam", 2, "--max-len-b", 5, "--unkpen", 9, *task)
    cfg = convert_namespace_to_omegaconf(parse(options.get_generation_parser(), data, *words))
    generate.main(cfg)
    print("interactive")
    cfg.interactive.buffer_size, cfg.interactive.input, cfg.dataset.batch_size = 0, "-", None
    with patch.object(sys, "stdin", io.StringIO("▁The ▁child\n\n")):
        interactive.main(cfg)


def load_here(path: Path) -> None:
    (model,), _cfg, _task = load_model_ensemble_and_task([str(path)])
    saved = parameters(path)
    assert all(torch.equal(tensor, saved[name]) for name, tensor in model.state_dict().items())


def check_loss(output: str) -> None:
    """Validation of the loaded model finds the loss that the training logged at its end."""
    trained, validated = re.findall(r'"valid_loss": "([\d.]+)"', output)
    assert trained == validated


def check_translations(output: str) -> None:
    of_split, of_lines = output.split("interactive\n")
    assert len(lines_of(of_split, "H")) == 8
    of_lines = [line.split("\t") for line in of_lines.splitlines() if line.startswith("H-")]
    assert of_lines[0][2]
    assert of_lines[1][1:] == ["0.0", ""]


ARCHITECTURES = {
    "ode_transformer_rk2_tiny": SMALL,
    "macaron_tiny": SMALL,
    "dlstm_tiny": SMALL,
    "reformer_fast_tiny": ("--task", "joint_translation", *SMALL),
    "transformer": SMALL,  # fairseq's own, as is the next one
    "lstm": ("--encoder-embed-dim", 32, "--decoder-embed-dim", 32, "--decoder-out-embed-dim", 32),
}


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_translation(arch: str, text: Text, tmp_path: Path) -> None:
    flags = ARCHITECTURES[arch]
    task = flags[:2] if "--task" in flags else ("--task", "translation")

    def program() -> None:
        path = train_here(text.data, tmp_path, "--arch", arch, *DIRECTION, *flags)
        load_here(path)
        validate_here(text.data, path, *task, *DIRECTION)
        translate_here(text.data, path, *task)

    output = output_of(program)
    check_loss(output)
    check_translations(output)


@pytest.mark.parametrize("arch", ["transformer", "ode_transformer_rk2_tiny"])
@pytest.mark.parametrize("tokens", [(), ("--encoder-langtok", "src", "--decoder-langtok")], ids=len)
def test_multilingual_translation(arch: str, tokens: tuple[str, ...], text: Text, tmp_path: Path) -> None:
    """A blank line has a language, but no word."""
    task = ("--task", "translation_multi_simple_epoch", "--lang-pairs", "en-de,de-en", *tokens)

    def program() -> None:
        path = train_here(text.data, tmp_path, "--arch", arch, *task, "--virtual-epoch-size", 100, *SMALL)
        load_here(path)
        validate_here(text.data, path, *task)
        translate_here(text.data, path, *task, *DIRECTION)

    check_translations(output_of(program))


def test_dictionaries_of_other_names(text: Text, tmp_path: Path) -> None:
    """Files in the folder of the data."""
    data = Path(shutil.copytree(text.data, tmp_path / "data"))
    task: tuple[object, ...] = ("--task", "translation_multi_simple_epoch", "--lang-pairs", "en-de", "--langs", "en,de")
    for side, language in (("source", "en"), ("target", "de")):
        (data / f"dict.{language}.txt").rename(data / f"{side} words")
        task = (*task, f"--{side}-dict", data / f"{side} words")

    def program() -> None:
        path = train_here(data, tmp_path, "--arch", "transformer", *task, "--virtual-epoch-size", 100, *SMALL)
        load_here(path)

    output_of(program)


@pytest.mark.parametrize("tokens", [(), ("--encoder-langtok", "src", "--decoder-langtok")], ids=len)
def test_models_of_several_directions(tokens: tuple[str, ...], text: Text, tmp_path: Path) -> None:
    """The task's dictionaries are those of its languages: training has no source and target."""
    task = ("--task", "multilingual_translation", "--lang-pairs", "en-de,de-en", *tokens)
    data = tmp_path / "data"

    def program() -> None:
        splits = [word for split in ("train", "valid") for word in (f"--{split}pref", str(text.folder / split))]
        words = [*DIRECTION, *splits, "--destdir", str(data)]
        preprocess.main(options.get_preprocessing_parser().parse_args(words))
        path = train_here(data, tmp_path, "--arch", "multilingual_transformer", *task, *SMALL)
        load_here(path)
        validate_here(data, path, *task)
        translate_here(data, path, *task, *DIRECTION)

    check_translations(output_of(program))
    assert (data / "dict.en.txt").read_text() != (data / "dict.de.txt").read_text()


LANGUAGE_MODELS = {
    "ode_transformer_lm_rk2": (),
    "ode_transformer_lm_euler": (
        *("--criterion", "adaptive_loss", "--adaptive-softmax-cutoff", "20,50", "--ddp-backend", "legacy_ddp"),
    ),
    "transformer_lm": (),
}


@pytest.mark.parametrize("arch", LANGUAGE_MODELS)
def test_language_models(arch: str, text: Text, tmp_path: Path) -> None:
    """The perplexity of fairseq-eval-lm is that of the training's validation."""
    data = tmp_path / "data"
    task = ("--task", "language_modeling", "--sample-break-mode", "eos", "--tokens-per-sample", 60)

    def program() -> None:
        splits = [word for split in ("train", "valid") for word in (f"--{split}pref", f"{text.folder / split}.en")]
        preprocess.main(
            options.get_preprocessing_parser().parse_args(["--only-source", *splits, "--destdir", str(data)])
        )
        path = train_here(data, tmp_path, "--arch", arch, *task, *OF_DECODER, *LANGUAGE_MODELS[arch])
        load_here(path)
        validate_here(data, path, *task)
        words = ("--path", path, "--gen-subset", "valid", *task[2:])
        eval_lm.main(convert_namespace_to_omegaconf(parse(options.get_eval_lm_parser(), data, *words)))
        translate_here(data, path, *task)

    output = output_of(program)
    check_loss(output)
    (perplexity,) = (float(found) for found in re.findall(r"Perplexity: ([\d.]+)", output))
    (trained, _validated) = (float(found) for found in re.findall(r'"valid_ppl": "([\d.]+)"', output))
    if "adaptive_loss" in LANGUAGE_MODELS[arch]:
        assert perplexity > trained  # the loss leaves out the word whose number in a part is that of the padding
    else:
        assert perplexity == pytest.approx(trained, abs=0.011)


def test_recomputed_activations(text: Text, tmp_path: Path) -> None:
    """``--checkpoint-activations`` changes no loss."""

    def program(*flags: str) -> None:
        flags = (*flags, "--dropout", "0.1", "--seed", "1", "--log-interval", "1")
        train_here(text.data, tmp_path, "--arch", "ode_transformer_rk2_tiny", *DIRECTION, *SMALL, *flags)

    losses = [
        re.findall(
            r'"loss": "([\d.]+)"',
            output_of(program, "--save-dir", str(tmp_path / name), *flags),
        )
        for name, flags in (("kept", ()), ("recomputed", ("--checkpoint-activations",)))
    ]
    assert losses[0] == losses[1]
    assert len(losses[0]) >= 4


def test_only_fairseqs_interface_reads_the_folder_that_a_checkpoint_names(untrained: Path, tmp_path: Path) -> None:
    state = load_checkpoint(untrained)
    folder = state["cfg"]["task"]["data"]
    assert admitted_state(state, any_of_fairseq=True)["cfg"].task.data == folder == str(untrained.parent)
    assert admitted_state(state, {"data": "other"}, any_of_fairseq=True)["cfg"].task.data == "other"
    assert admitted_state(state)["cfg"].task.data == ""
    (tmp_path / "link").symlink_to("nothing")
    state["cfg"]["task"]["data"] = f"{folder}:{tmp_path}"
    assert admitted_state(state, any_of_fairseq=True)["cfg"].task.data == f"{folder}:{tmp_path}"
    os.mkfifo(tmp_path / "dict.en.txt")
    with pytest.raises(UserError, match=r"refused: in the folder of its data, .*/dict\.en\.txt is not a file"):
        admitted_state(state, any_of_fairseq=True)
