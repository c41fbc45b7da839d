"""Plain models and their checkpoints, with dictionaries, pieces and data, without fairseq and without any training."""

import struct
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import torch
from batches import perturb

from ode_transformer.checkpoints.dictionary import Dictionary
from ode_transformer.checkpoints.plain_model import PlainModel, build, model_kind, model_options
from ode_transformer.checkpoints.reading import save_checkpoint

_LINES = Path(__file__).with_name("pairs.tsv").read_text(encoding="utf-8").splitlines()
PAIRS = [(source, target) for source, target in (line.split("\t") for line in _LINES)]
ANY_NAME = "a:b,c ${x} ü"  # of a folder
MAX_POSITIONS = 64  # tokens of a line at most, the end symbol included


def _sizes(**of_stacks: int) -> dict[str, int]:
    return {f"{stack}_{name}": size for stack in ("encoder", "decoder") for name, size in of_stacks.items()}


SMALL = _sizes(embed_dim=32, ffn_embed_dim=48, layers=2, attention_heads=2)
NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}


def small_plain_model(seed: int = 0, arch: str = "ode_transformer_euler", **options: Any) -> PlainModel:
    """A model of 2-2 layers in float64, in evaluation mode, whose every parameter has been moved away from its start.

    :param options: in place of those of the architecture; embeddings are shared
    """
    sizes = _sizes(embed_dim=16, ffn_embed_dim=24, layers=2, attention_heads=2) | {"max_relative_positions": 3}
    torch.manual_seed(seed)
    return perturb(_build({"arch": arch, "share_all_embeddings": True, **sizes, **options}, 30).double()).eval()


def _build(options: dict[str, Any], words: int) -> PlainModel:
    kind = model_kind(options)
    return build(kind, model_options(options, kind), words)


def train_pieces(prefix: Path) -> Any:
    """Write a subword model of both languages, ``prefix.model``; return its processor."""
    sentences = iter([sentence for pair in PAIRS for sentence in pair])
    model = {"sentence_iterator": sentences, "model_prefix": str(prefix), "vocab_size": 200}
    sentencepiece.SentencePieceTrainer.train(**model, minloglevel=2)
    return sentencepiece.SentencePieceProcessor(model_file=f"{prefix}.model")


def make_plain_model(directory: Path, arch: str = "ode_transformer_rk2_tiny", **options: Any) -> Path:
    """Write ``model.pt``, ``dict.en.txt``, ``dict.de.txt`` and ``sentencepiece.bpe.model``; return the first.

    Its parameters are random, yet a translation depends on the line.

    :param options: of the model, in place of those of the architecture
    """
    pieces = train_pieces(directory / "sentencepiece.bpe")
    words = [pieces.id_to_piece(number) for number in range(3, pieces.get_piece_size())]  # after the symbols
    for language in ("en", "de"):
        _write_dictionary(directory / f"dict.{language}.txt", words)
    saved = {"max_source_positions": MAX_POSITIONS, "max_target_positions": MAX_POSITIONS, **options}
    return _write(directory, arch, saved, len(words), "translation", source_lang="en", target_lang="de")


def make_plain_language_model(directory: Path, arch: str = "ode_transformer_lm_rk2", **options: Any) -> Path:
    """Write ``model.pt``, ``dict.txt`` and 24 sentences as the split ``valid``; return the first."""
    sentences = [sentence for sentence, _ in PAIRS[:24]]
    words = sorted({word for sentence in sentences for word in sentence.split()})
    _write_dictionary(directory / "dict.txt", words)
    _write_indexed(directory / "valid", Dictionary(words), sentences)
    blocks = {"sample_break_mode": "complete", "tokens_per_sample": 12}
    return _write(directory, arch, options, len(words), "language_modeling", **blocks)


def binarise(directory: Path, split: str, pairs: Sequence[tuple[str, str]]) -> None:
    """Write sentence pairs, already in pieces, as fairseq-preprocess does."""
    for language, sentences in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
        dictionary = Dictionary.load(directory / f"dict.{language}.txt")
        _write_indexed(directory / f"{split}.en-de.{language}", dictionary, sentences)


def _write_indexed(prefix: Path, dictionary: Dictionary, sentences: Sequence[str]) -> None:
    texts = [dictionary.encode_line(sentence).numpy().astype(np.int32) for sentence in sentences]
    sizes = np.array([len(text) for text in texts], np.int32)
    starts = (np.cumsum(sizes, dtype=np.int64) - sizes) * 4
    prefix.with_name(f"{prefix.name}.bin").write_bytes(b"".join(text.tobytes() for text in texts))
    header = struct.pack("<9sQBQ", b"MMIDIDX\x00\x00", 1, 4, len(texts))  # 4 stands for int32
    prefix.with_name(f"{prefix.name}.idx").write_bytes(header + sizes.tobytes() + starts.tobytes())


def _write_dictionary(path: Path, words: Sequence[str]) -> None:
    path.write_text("".join(f"{word} 1\n" for word in words), encoding="utf-8")


def _write(directory: Path, arch: str, options: dict[str, Any], words: int, task: str, **of_task: Any) -> Path:
    sizes = SMALL if task == "translation" else {n: size for n, size in SMALL.items() if n.startswith("decoder")}
    saved = {"arch": arch, **sizes, **options, "ode_options_saved": True}
    torch.manual_seed(1)
    built = _build(saved, words + 4)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.mul_(4)  # with small ones the translation of every line would be the same
    state = {
        "args": None,
        "cfg": {
            "common": {},
            "generation": {},
            "model": Namespace(**saved),
            "task": {"_name": task, "data": str(directory), **of_task},
            "criterion": {"_name": "label_smoothed_cross_entropy", "label_smoothing": 0.1},
        },
        "model": built.state_dict(),
        "optimizer_history": [{"optimizer_name": "FairseqAdam", "lr_scheduler_state": {}, "num_updates": 0}],
        "extra_state": {"train_iterator": {"epoch": 1}},
    }
    save_checkpoint(state, directory / "model.pt")
    return directory / "model.pt"
