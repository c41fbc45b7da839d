"""Checkpoints as fairseq writes them, with their dictionaries beside them, without any training."""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from commands_for_tests import SMALL
from fairseq import options, tasks
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf
from plain_models import MAX_POSITIONS, PAIRS, train_pieces

from ode_transformer.checkpoints.reading import save_checkpoint
from ode_transformer.models.admission import is_of_this_package


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
