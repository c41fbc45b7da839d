"""Checkpoints as fairseq writes them, with their dictionaries beside them, without any training."""

import os
import zipfile
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from commands_for_tests import PAIRS, SMALL, train_pieces
from fairseq import checkpoint_utils, options, tasks
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf

from ode_transformer.checkpoints.reading import load_checkpoint, save_checkpoint
from ode_transformer.cli.checkpoints import checked
from ode_transformer.decoding.trained_model import load_trained_model
from ode_transformer.models import ODETransformerModel
from ode_transformer.models.admission import is_of_this_package

MAX_POSITIONS = 64  # tokens of a line at most, the end symbol included


def make_model(directory: Path, *more: object) -> Path:
    """Writes ``model.pt``, ``dict.en.txt``, ``dict.de.txt`` and ``sentencepiece.bpe.model``; returns the first.

    Its parameters are random, yet a translation depends on the line. ``more`` are further flags. As a training by a
    recipe, it logs samples.
    """
    pieces = train_pieces(directory / "sentencepiece.bpe")
    dictionary = Dictionary()
    for number in range(3, pieces.get_piece_size()):  # 0 to 2 are <unk>, <s> and </s>
        dictionary.add_symbol(pieces.id_to_piece(number))
    for language in ("en", "de"):
        dictionary.save(str(directory / f"dict.{language}.txt"))
    positions = ("--max-source-positions", MAX_POSITIONS, "--max-target-positions", MAX_POSITIONS)
    arch = more[more.index("--arch") + 1] if "--arch" in more else "ode_transformer_rk2_tiny"
    samples = ("--log-samples", 2) if is_of_this_package(str(arch)) else ()
    flags = ("--task", "translation", "--arch", arch, *SMALL, *positions, *samples, *more)
    return _write(directory, flags, {"source_lang": "en", "target_lang": "de"})


def make_language_model(directory: Path, *flags: object) -> Path:
    """Writes ``model.pt``, ``dict.txt`` and 24 sentences as the split ``valid``; returns the first."""
    sentences = [sentence.split() for sentence, _ in PAIRS[:24]]
    dictionary = Dictionary()
    for word in sorted({word for words in sentences for word in words}):
        dictionary.add_symbol(word)
    dictionary.save(str(directory / "dict.txt"))
    builder = MMapIndexedDatasetBuilder(str(directory / "valid.bin"))
    for words in sentences:
        builder.add_item(dictionary.encode_line(" ".join(words), add_if_not_exist=False))
    builder.finalize(str(directory / "valid.idx"))
    sizes = SMALL[SMALL.index("--decoder-embed-dim") :]
    task = ("--task", "language_modeling", "--sample-break-mode", "complete", "--tokens-per-sample", 12)
    return _write(directory, (*task, "--arch", "ode_transformer_lm_rk2", *sizes, *flags))


def _write(directory: Path, flags: Sequence[object], known: Mapping[str, str] | None = None) -> Path:
    """``model.pt`` of random parameters; ``known`` completes the task's options."""
    parser = options.get_training_parser()
    args = options.parse_args_and_arch(parser, ["data", *map(str, flags)])
    cfg = convert_namespace_to_omegaconf(Namespace(**vars(args) | dict(known or {})))
    cfg.task.data = str(directory).replace("${", r"\${")  # which OmegaConf would replace
    torch.manual_seed(1)
    model = tasks.setup_task(cfg.task).build_model(cfg.model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4)  # with small ones the translation of every line would be the same
    state = {
        "args": None,
        "cfg": OmegaConf.to_container(cfg, resolve=True, enum_to_str=True),
        "model": model.state_dict(),
        "optimizer_history": [{"optimizer_name": "FairseqAdam", "lr_scheduler_state": {}, "num_updates": 0}],
        "extra_state": {"train_iterator": {"epoch": 1}},
    }
    save_checkpoint(state, directory / "model.pt")
    return directory / "model.pt"


def open_model(door: str, folder: Path) -> object:
    """Open the folder's model.pt by one of the ways that users take."""
    path = folder / "model.pt"
    if door == "verify":
        return checked(path, load_checkpoint(path))
    if door == "fairseq":  # as fairseq-generate --user-dir
        return checkpoint_utils.load_model_ensemble_and_task([str(path)], {"data": str(folder)})
    if door == "from_pretrained":
        return ODETransformerModel.from_pretrained(str(folder), "model.pt")
    return load_trained_model(path, folder)


def as_args(state: dict[str, Any], /, **options: Any) -> None:
    """Give a checkpoint the older form: one namespace with all options."""
    values = vars(state["cfg"]["model"]) | state["cfg"]["task"]
    del values["_name"]
    state.update(cfg=None, args=Namespace(**(values | options)))


class Intruder:
    """Unpickled without care, it creates the file ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch '{self.path}'",)


def rewrite(folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Change the folder's ``model.pt``, whose pickle torch reads and writes without any check; return it."""
    state = torch.load(folder / "model.pt", weights_only=False)
    change(state)
    torch.save(state, folder / "model.pt")
    return folder / "model.pt"


def flip(path: Path, bit: int) -> None:
    """Turns one bit of a file, counted from its start."""
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def flip_in_a_tensor(path: Path) -> None:
    """Turns the last bit of a number in the middle of the checkpoint's largest tensor."""
    with zipfile.ZipFile(path) as archive:
        largest = max(archive.infolist(), key=lambda entry: entry.file_size)
        content = archive.read(largest)
    # The archive's entries are not compressed, so that the tensor is in the file as it is in memory.
    flip(path, 8 * (path.read_bytes().index(content) + len(content) // 2 // 4 * 4))


def binarise(directory: Path, split: str, pairs: Sequence[tuple[str, str]]) -> None:
    """Writes sentence pairs, already in pieces, as fairseq-preprocess does."""
    for side, language in enumerate(("en", "de")):
        dictionary = Dictionary.load(str(directory / f"dict.{language}.txt"))
        prefix = directory / f"{split}.en-de.{language}"
        builder = MMapIndexedDatasetBuilder(f"{prefix}.bin")
        for pair in pairs:
            builder.add_item(dictionary.encode_line(pair[side], add_if_not_exist=False))
        builder.finalize(f"{prefix}.idx")
