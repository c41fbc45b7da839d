"""Vocabularies: whole words, subword-nmt's merges, or sentencepiece's pieces.

Each kind is learned from the training text of a corpus and then applied to every split. ``learn`` writes the file
``model_file``, which must stay beside every model trained with it. ``remove_bpe`` is the value of fairseq's
``--remove-bpe`` that joins pieces to words again, and the kind of ``SUBWORD_MODELS``.

Merges are learned on one core. Hugging Face's tokenizers take a tenth of the time, but learn others: among pairs that
occur equally often they go by the numbers of the pieces, subword-nmt by their letters.
"""

import io
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import sentencepiece
from pydantic import Field
from subword_nmt import learn_bpe

from ode_transformer.support.console import ProgressMeter, track
from ode_transformer.support.lines import SYMBOLS, iterate_lines
from ode_transformer.support.parallel import map_chunks
from ode_transformer.support.subword_models import SENTENCEPIECE_FILE, SUBWORD_NMT_FILE, SubwordEncoder
from ode_transformer.support.yaml_file import YamlSection

TARGET_MERGES = "bpecodes.target"  # where each side has its own; beside a model lie those of the source, which it reads
LINES, SEED = 1_000_000, 1  # sentencepiece learns from so many lines of a longer text, drawn at random: 3 to 4 GB

learn_bpe.tqdm = partial(track, label="merges learned")  # its own progress bar writes one line for each merge

Size = Annotated[int, Field(gt=0)]


class WordVocabulary(YamlSection):
    """Words of the text as they are.

    :param joined: one dictionary for both sides
    :param min_count: words that occur less often in the training text become unknown words
    """

    kind: Literal["words"]
    joined: bool = True
    min_count: Size = 1

    model_file: ClassVar[str | None] = None
    remove_bpe: ClassVar[str | None] = None

    def learn(self, texts: Sequence[Path], output: Path) -> None:
        """Do nothing: fairseq-preprocess counts the words."""


class MergeVocabulary(YamlSection):
    """Byte-pair encoding of tokenised text by subword-nmt.

    :param merges: their number
    :param learned_from: side of the training text; each: each side has so many merges of its own
    :param joined: one dictionary for both sides
    """

    kind: Literal["subword_nmt"]
    merges: Size
    learned_from: Literal["both", "source", "target", "each"] = "both"
    joined: bool = True
    min_count: ClassVar[int] = 1

    model_file: ClassVar[str | None] = SUBWORD_NMT_FILE
    remove_bpe: ClassVar[str | None] = "subword_nmt"

    def learn(self, texts: Sequence[Path], output: Path) -> None:
        """Learn the merges from the training text of the source and the target; fewer, if no more occur."""
        chosen = {"both": texts, "target": texts[-1:]}.get(self.learned_from, texts[:1])
        self._learn(chosen, output / SUBWORD_NMT_FILE)
        if self.learned_from == "each":
            self._learn(texts[-1:], output / TARGET_MERGES)

    def _learn(self, chosen: Sequence[Path], output: Path) -> None:
        codes = io.StringIO()
        learn_bpe.learn_bpe(_training_lines(chosen), codes, self.merges)
        output.write_text(codes.getvalue(), encoding="utf-8", newline="\n")
        if (learned := codes.getvalue().count("\n") - 1) < self.merges:
            print(f"{', '.join(map(str, chosen))}: only {learned:,} of {self.merges:,} merges occur")


class PieceVocabulary(YamlSection):
    """Sentencepiece's pieces, learned from both sides together.

    The own normalisation of ``sentencepiece_lowercase`` lower-cases, so that every later use of it does the same.

    :param size: number of pieces
    :param fewer: take fewer pieces if no more occur, instead of an error
    """

    kind: Literal["sentencepiece", "sentencepiece_lowercase"]
    size: Size
    fewer: Annotated[bool, Field(exclude_if=lambda fewer: not fewer)] = False
    joined: ClassVar[bool] = True
    min_count: ClassVar[int] = 1

    model_file: ClassVar[str | None] = SENTENCEPIECE_FILE
    remove_bpe: ClassVar[str | None] = "sentencepiece"

    def learn(self, texts: Sequence[Path], output: Path) -> None:
        """Learn the pieces from all texts; the file depends on them alone, and names no folder or machine."""
        model, options = io.BytesIO(), dict[str, Any]()
        if sum(1 for text in texts for _ in iterate_lines(text)) > LINES:
            options = {"input_sentence_size": LINES, "shuffle_input_sentence": True}
        if self.kind == "sentencepiece_lowercase":
            options["normalization_rule_name"] = "nmt_nfkc_cf"
        sentencepiece.set_random_generator_seed(SEED)
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_training_lines(texts),
            model_writer=model,
            vocab_size=self.size,
            hard_vocab_limit=not self.fewer,
            character_coverage=1.0,
            max_sentence_length=2**24,  # bytes; by default sentencepiece leaves out longer lines than 4,192 bytes
            minloglevel=2,
            **options,
        )
        (output / SENTENCEPIECE_FILE).write_bytes(model.getvalue())


Vocabulary = Annotated[WordVocabulary | MergeVocabulary | PieceVocabulary, Field(discriminator="kind")]


def _training_lines(texts: Sequence[Path]) -> Iterator[str]:
    """Yield the lines from which pieces are learned, and print how many are read."""
    meter = ProgressMeter("lines read, to learn pieces")
    for line in chain.from_iterable(map(iterate_lines, texts)):
        yield line
        meter.add(1)


def divide_lines(kind: str, model: Path, lines: list[str]) -> list[str]:
    """Return lines of pieces with spaces between them."""
    encoder = _read_encoder(kind, model, model.stat().st_mtime_ns)
    return [encoder.encode(line) for line in lines]


@lru_cache(maxsize=2)  # once in each process, for each side
def _read_encoder(kind: str, model: Path, mtime_ns: int) -> SubwordEncoder:
    return SubwordEncoder(kind, model)


def encode_text(
    vocabulary: Vocabulary, folder: Path, text: Path, workers: int, of_target: bool = False
) -> Iterator[str]:
    """Yield the lines of a text of the source or the target as pieces, by what was learned into a folder.

    A word that has the name of one of fairseq's symbols, such as ``<pad>``, is unknown.
    """
    lines = iterate_lines(text)
    if vocabulary.model_file is not None and vocabulary.remove_bpe is not None:
        has_own_merges = of_target and (folder / TARGET_MERGES).exists()
        model = folder / (TARGET_MERGES if has_own_merges else vocabulary.model_file)
        divide, total = partial(divide_lines, vocabulary.remove_bpe, model), sum(1 for _ in iterate_lines(text))
        lines = map_chunks(divide, lines, workers, f"lines of {text.name} divided", total=total)
    return (SYMBOLS.sub("<unk>", line) for line in lines)
