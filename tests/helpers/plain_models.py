"""Checkpoints of plain models with their dictionaries and pieces, without fairseq and without any training."""

from argparse import Namespace
from pathlib import Path
from typing import Any

import sentencepiece
import torch

from ode_transformer.checkpoints.plain_model import build, model_options
from ode_transformer.checkpoints.reading import save_checkpoint

_LINES = Path(__file__).with_name("pairs.tsv").read_text(encoding="utf-8").splitlines()
_SENTENCES = [sentence for line in _LINES for sentence in line.split("\t")]
_SIZES = {"embed_dim": 32, "ffn_embed_dim": 48, "layers": 2, "attention_heads": 2}
SMALL: dict[str, Any] = {f"{stack}_{name}": size for stack in ("encoder", "decoder") for name, size in _SIZES.items()}


def make_plain_model(directory: Path, arch: str = "ode_transformer_ones_tiny", **options: Any) -> Path:
    """Write ``model.pt``, ``dict.en.txt``, ``dict.de.txt`` and ``sentencepiece.bpe.model``; return the first.

    Its parameters are random, yet a translation depends on the line.

    :param options: of the model, in place of those of the architecture
    """
    pieces = directory / "sentencepiece.bpe"
    training = {"sentence_iterator": iter(_SENTENCES), "model_prefix": str(pieces), "vocab_size": 200}
    sentencepiece.SentencePieceTrainer.train(**training, minloglevel=2)
    processor = sentencepiece.SentencePieceProcessor(model_file=f"{pieces}.model")
    words = [processor.id_to_piece(number) for number in range(3, processor.get_piece_size())]  # after the symbols
    for language in ("en", "de"):
        (directory / f"dict.{language}.txt").write_text("".join(f"{word} 1\n" for word in words), encoding="utf-8")
    positions = {"max_source_positions": 64, "max_target_positions": 64}
    saved = {"arch": arch, **SMALL, **positions, **options, "ode_options_saved": True}
    torch.manual_seed(1)
    built = build("ode_transformer", model_options(saved, "ode_transformer"), len(words) + 4)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.mul_(4)  # with small ones the translation of every line would be the same
    languages = {"source_lang": "en", "target_lang": "de"}
    state = {
        "args": None,
        "cfg": {
            "model": Namespace(**saved),
            "task": {"_name": "translation", "data": str(directory), **languages},
            "criterion": {"_name": "label_smoothed_cross_entropy", "label_smoothing": 0.1},
        },
        "model": built.state_dict(),
        "optimizer_history": [{"num_updates": 0}],
        "extra_state": {"train_iterator": {"epoch": 1}},
    }
    save_checkpoint(state, directory / "model.pt")
    return directory / "model.pt"
