"""Joint sentencepiece vocabulary of a parallel corpus."""

from __future__ import annotations

from pathlib import Path

import sentencepiece

from ode_transformer.errors import UserError
from ode_transformer.evaluation.lines import read_lines
from ode_transformer.recipes.files import place
from ode_transformer.recipes.parallel_text import SPLITS

MODEL = "sentencepiece.bpe.model"  # the name that fairseq's from_pretrained looks for


def train_and_encode(corpus: Path, languages: tuple[str, str], size: int, output: Path) -> None:
    """Learns ``size`` pieces from both sides of the training split and writes every split as pieces.

    :raises UserError: the corpus is too small for so many pieces
    """
    output.mkdir(parents=True, exist_ok=True)
    unfinished = output / "unfinished"
    try:
        sentencepiece.SentencePieceTrainer.train(
            input=[str(corpus / f"train.{language}") for language in languages],
            model_prefix=str(unfinished),
            vocab_size=size,
            character_coverage=1.0,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise UserError(f"vocabulary of {size} pieces from {corpus}: {error}") from error
    processor = sentencepiece.SentencePieceProcessor(model_file=f"{unfinished}.model")
    encoded = {
        f"{split}.{language}": "".join(
            " ".join(pieces) + "\n"
            for pieces in processor.encode(read_lines(corpus / f"{split}.{language}"), out_type=str)
        )
        for split in SPLITS
        for language in languages
    }
    place(output, encoded, last=f"test.{languages[1]}")
    unfinished.with_suffix(".vocab").unlink()
    unfinished.with_suffix(".model").rename(output / MODEL)
