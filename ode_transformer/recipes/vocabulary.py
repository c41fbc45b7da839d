"""Vocabularies of sentencepiece, among them the joint one of a parallel corpus."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sentencepiece

from ode_transformer.errors import UserError
from ode_transformer.evaluation.lines import read_lines
from ode_transformer.recipes.files import place
from ode_transformer.recipes.parallel_text import SPLITS

MODEL = "sentencepiece.bpe.model"  # the name that fairseq's from_pretrained looks for


def learn(texts: Sequence[Path], size: int, prefix: Path, **options: Any) -> Path:
    """Learns pieces from texts.

    :param prefix: of the model's name
    :param options: of sentencepiece's trainer
    :returns: the model
    :raises UserError: the texts are too small for so many pieces
    """
    try:
        sentencepiece.SentencePieceTrainer.train(
            input=[str(text) for text in texts],
            model_prefix=str(prefix),
            vocab_size=size,
            character_coverage=1.0,
            minloglevel=2,
            **options,
        )
    except RuntimeError as error:
        raise UserError(f"vocabulary of {size} pieces from {', '.join(map(str, texts))}: {error}") from error
    prefix.with_suffix(".vocab").unlink()
    return prefix.with_suffix(".model")


def train_and_encode(corpus: Path, languages: tuple[str, str], size: int, output: Path) -> None:
    """Learns ``size`` pieces from both sides of the training split and writes every split as pieces.

    :raises UserError: the corpus is too small for so many pieces
    """
    output.mkdir(parents=True, exist_ok=True)
    model = learn([corpus / f"train.{language}" for language in languages], size, output / "unfinished")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
    encoded = {
        f"{split}.{language}": "".join(
            " ".join(pieces) + "\n"
            for pieces in processor.encode(read_lines(corpus / f"{split}.{language}"), out_type=str)
        )
        for split in SPLITS
        for language in languages
    }
    place(output, encoded, last=f"test.{languages[1]}")
    model.rename(output / MODEL)
