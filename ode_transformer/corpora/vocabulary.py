"""How text is divided into the pieces that a model reads: by subword-nmt's merges, by sentencepiece, or not at all.

Each way is learned from the training text of a corpus and then applied to every split. A class says the way: its
``learn`` leaves a file called ``model``, which belongs to every model trained on these pieces, and its ``encoder``
reads that file. ``remove`` is what fairseq's ``--remove-bpe`` is told, for words to come out again.
"""

from __future__ import annotations

import contextlib
import io
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import sentencepiece
from pydantic import Field
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from ode_transformer.support.errors import UserError
from ode_transformer.support.lines import iterate_lines
from ode_transformer.support.parallel import map_chunks
from ode_transformer.support.yaml_file import YamlSection

# The names that fairseq's from_pretrained looks for beside a model.
MODEL = "sentencepiece.bpe.model"
CODES = "bpecodes"

Size = Annotated[int, Field(gt=0)]
Encode = Callable[[list[str]], list[str]]  # lines of text -> lines of pieces with spaces between them


class Words(YamlSection):
    """The text's own words.

    :param joined: one dictionary for both sides
    :param min_count: words that occur less often in training are unknown ones
    """

    kind: Literal["words"]
    joined: bool = True
    min_count: Size = 1

    model: ClassVar[str | None] = None
    remove: ClassVar[str | None] = None

    def learn(self, texts: Sequence[Path], output: Path, workers: int) -> None:
        """There is nothing to learn."""

    def encoder(self, folder: Path) -> Encode:
        return list


class Merges(YamlSection):
    """Byte-pair encoding of tokenised text by subword-nmt.

    :param merges: how many
    :param learned_from: which side's training text
    :param joined: one dictionary for both sides
    """

    kind: Literal["subword_nmt"]
    merges: Size
    learned_from: Literal["both", "source", "target"] = "both"
    joined: bool = True
    min_count: ClassVar[int] = 1

    model: ClassVar[str | None] = CODES
    remove: ClassVar[str | None] = "subword_nmt"

    def learn(self, texts: Sequence[Path], output: Path, workers: int) -> None:
        """Learns the merges, or as many as there are, from the source's and the target's training text."""
        chosen = {"both": texts, "source": texts[:1], "target": texts[-1:]}[self.learned_from]
        words: Counter[str] = Counter()
        for text in chosen:
            for counted in map_chunks(count_words, iterate_lines(text), workers, f"lines of {text.name} counted"):
                words.update(counted)
        counts = io.StringIO("".join(f"{word} {count}\n" for word, count in words.items()))
        codes = io.StringIO()
        with contextlib.redirect_stderr(io.StringIO()):  # its bar of progress draws one line for each merge
            learn_bpe(counts, codes, self.merges, is_dict=True)
        (output / CODES).write_text(codes.getvalue(), encoding="utf-8", newline="\n")
        if (learned := codes.getvalue().count("\n") - 1) < self.merges:
            print(f"{', '.join(map(str, chosen))}: no more than {learned:,} merges occur in it, of {self.merges:,}")

    def encoder(self, folder: Path) -> Encode:
        return partial(apply_merges, folder / CODES)


class Pieces(YamlSection):
    """Sentencepiece's pieces, of both sides together.

    :param size: how many
    """

    kind: Literal["sentencepiece"]
    size: Size
    joined: ClassVar[bool] = True
    min_count: ClassVar[int] = 1

    model: ClassVar[str | None] = MODEL
    remove: ClassVar[str | None] = "sentencepiece"

    def learn(self, texts: Sequence[Path], output: Path, workers: int) -> None:
        """
        :raises UserError: the texts are too small for so many pieces
        """
        learn(texts, self.size, output / "unfinished").rename(output / MODEL)

    def encoder(self, folder: Path) -> Encode:
        return partial(apply_pieces, folder / MODEL)


Vocabulary = Annotated[Words | Merges | Pieces, Field(discriminator="kind")]


def learn(texts: Sequence[Path], size: int, prefix: Path, **options: Any) -> Path:
    """Learns sentencepiece's pieces from texts.

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


def count_words(lines: list[str]) -> list[Counter[str]]:
    """One count for all the lines."""
    return [Counter(word for line in lines for word in line.split())]


def apply_merges(codes: Path, lines: list[str]) -> list[str]:
    """Words divided at ``@@``."""
    bpe = _read_merges(codes, codes.stat().st_mtime_ns)
    return [bpe.process_line(line) for line in lines]


def apply_pieces(model: Path, lines: list[str]) -> list[str]:
    """Lines as sentencepiece divides them."""
    processor = _read_pieces(model, model.stat().st_mtime_ns)
    return [" ".join(pieces) for pieces in processor.encode(lines, out_type=str)]


@lru_cache(maxsize=1)  # once in each process
def _read_merges(codes: Path, changed: int) -> BPE:
    with open(codes, encoding="utf-8") as file:
        return BPE(file)


@lru_cache(maxsize=1)
def _read_pieces(model: Path, changed: int) -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_file=str(model))


def encoded(vocabulary: Words | Merges | Pieces, folder: Path, text: Path, workers: int) -> Iterator[str]:
    """The lines of a text as pieces."""
    return map_chunks(vocabulary.encoder(folder), iterate_lines(text), workers, f"lines of {text.name} divided")
