"""Corpora of one language, for language models: plain text, documents for BERT, and the Penn Treebank.

Documents have one sentence a line and blank lines between them; in a file without blank lines every line is a document.
Whole documents are held out for validation.

The Penn Treebank is the text that Mikolov et al. (2010) prepared, in which ``<unk>`` is a word that a model has to
predict (docs/penn_treebank.md). A word that is missing in the training text would also count as ``<unk>`` and lower the
perplexity, so a text with such a word is refused.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from ode_transformer.lab.corpora.cleaning import single_spaces
from ode_transformer.lab.corpora.corpus import CorpusKind, SplitWriter, fairseq_test_split
from ode_transformer.lab.corpora.download import Sources, local_path, obtain_files
from ode_transformer.lab.corpora.raw_text import Files, read_texts
from ode_transformer.lab.corpora.wheel_corpus import text_hash
from ode_transformer.support.errors import UserError

SourceNames = Annotated[list[str], Field(min_length=1)]


class TextCorpus(CorpusKind):
    """Corpus with one side, whose files end in ``.txt``."""

    @property
    def languages(self) -> tuple[str]:
        return ("txt",)


class PlainTextCorpus(TextCorpus):
    """Lines of text files; white space becomes single spaces, and empty lines are left out.

    :param train: names of the sources of the training text, in this order
    :param valid: of the validation text
    :param test: of the test sets, by name
    """

    kind: Literal["text"]
    train: SourceNames
    valid: SourceNames
    test: dict[str, SourceNames] = {}

    @property
    def sources(self) -> list[str]:
        return list(dict.fromkeys(chain(self.train, self.valid, *self.test.values())))

    @property
    def tests(self) -> list[str]:
        return list(self.test)

    def write(self, files: Files, splits: SplitWriter, workers: int) -> None:
        tests = {fairseq_test_split(number): names for number, names in enumerate(self.test.values())}
        for split, names in {"train": self.train, "valid": self.valid, **tests}.items():
            paths = [files[name] for name in names]
            for line in text_lines(paths):
                splits.add(split, (line,))
            splits.check_filled(split, files=paths)


def text_lines(paths: Sequence[Path]) -> Iterator[str]:
    """Yield the lines of texts, compressed or not, that are not empty."""
    for path in paths:
        yield from filter(None, map(single_spaces, read_texts(path)))


class DocumentCorpus(TextCorpus):
    """Settings of a corpus of documents.

    :param texts: names of the raw files in the source list
    :param valid_fraction: fraction of the documents that is held out
    """

    kind: Literal["documents"] = "documents"
    texts: SourceNames
    valid_fraction: Annotated[float, Field(gt=0, lt=1)]

    @property
    def sources(self) -> list[str]:
        return self.texts

    @property
    def tests(self) -> list[str]:
        return []

    def write(self, files: Files, splits: SplitWriter, workers: int) -> None:
        """Write ``train.txt`` and ``valid.txt``, with a blank line after each document of several lines."""
        for document in documents([files[name] for name in self.texts]):
            # The prefix makes this split independent of the corpora's own, which hash the text alone.
            held_out = text_hash("pre-training " + "\n".join(document)) < self.valid_fraction * 2**64
            for line in [*document, ""] if len(document) > 1 else document:
                splits.add("valid" if held_out else "train", (line,))
        splits.check_filled("train", "valid", files=files.values())


def documents(paths: Sequence[Path]) -> Iterator[list[str]]:
    """Yield the lines of each document, stripped; in a file without inner blank lines every line is a document."""
    for path in paths:
        runs = groupby(read_texts(path), key=lambda line: bool(line.strip()))
        has_blank_lines = [has_text for has_text, _ in islice(runs, 4)].count(True) > 1  # between two lines of text
        document: list[str] = []
        for line in map(str.strip, read_texts(path)):
            if line:
                document.append(line)
            if document and not (line and has_blank_lines):
                yield document
                document = []
        if document:
            yield document


ARCHIVE = "ptb"
MEMBERS = {split: f"simple-examples/data/ptb.{split}.txt" for split in ("train", "valid", "test")}
SEPARATE = {split: f"ptb_{split}" for split in MEMBERS}
UNKNOWN = "<unk>"


class PennTreebankCorpus(TextCorpus):
    """Settings of the Penn Treebank corpus.

    :param types: number of different words that the training text must have, counting ``<unk>``, but not the end of a
        sentence
    """

    kind: Literal["penn_treebank"] = "penn_treebank"
    types: int = 9_999

    @property
    def sources(self) -> list[str]:
        return list(SEPARATE.values())

    def obtain(self, sources: Sources, raw: Path | None, folder: Path) -> Files:
        """As in the base class, but the user's folder may have the archive instead of the three files.

        The test split may be missing in it.
        """
        names = self.sources
        if raw is not None:
            names = [ARCHIVE] if local_path(sources[ARCHIVE], raw, folder).is_file() else names
            names = [n for n in names if n != SEPARATE["test"] or local_path(sources[n], raw, folder).is_file()]
        return obtain_files(names, sources, raw, folder)

    def write(self, files: Files, splits: SplitWriter, workers: int) -> None:
        """Write it from ``ptb``, the archive, or of ``ptb_train``, ``ptb_valid`` and, if present, ``ptb_test``."""
        texts: dict[str, tuple[Path, str | None]] = {
            split: (files[name], None) for split, name in SEPARATE.items() if name in files
        }
        if ARCHIVE in files:
            texts = {split: (files[ARCHIVE], member) for split, member in MEMBERS.items()}
        types: set[str] = set()
        for split, (path, member) in texts.items():
            for sentence in map(str.split, read_texts(path, member)):
                types.update(sentence)
                splits.add(split, (" ".join(sentence),))
            if UNKNOWN not in types or len(types) != self.types:  # the training text has all words
                expected = f"Mikolov's text has {self.types:,}, {UNKNOWN} among them"
                raise UserError(f"{path}: {len(types):,} different words so far; {expected}")
            splits.check_filled(split, files=[path])
