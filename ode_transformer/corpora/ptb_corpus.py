"""Penn Treebank for language models, as Mikolov et al. (2010) prepared it: words in lower case, no punctuation, numbers
as ``N``, rare words as ``<unk>``. 9,998 words, ``<unk>`` and the end of a sentence make 10,000 types.

It is made from Mikolov's archive, or from its three files by themselves, and stays as it is: a sentence a line.

``<unk>`` is a word of this text, which a model has to predict and perplexity counts. It is also how fairseq writes its
symbol for unknown words, so fairseq-preprocess gives it that symbol's number (3) and no line in ``dict.txt``; training,
generation and fairseq-eval-lm treat it as any word. Words that the training text lacks would be counted as ``<unk>``,
too, and make the perplexity lower than it is: a text with such words is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from ode_transformer.corpora.corpus import CorpusKind
from ode_transformer.corpora.download import lies_in, obtain
from ode_transformer.corpora.raw_archives import open_texts, reading
from ode_transformer.corpora.sources import read_catalogue
from ode_transformer.support.console import print_progress
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import atomic_directory
from ode_transformer.support.lines import decode_stream

ARCHIVE = "ptb"
MEMBERS = {split: f"simple-examples/data/ptb.{split}.txt" for split in ("train", "valid", "test")}
SEPARATE = {split: f"ptb_{split}" for split in MEMBERS}
UNKNOWN = "<unk>"


class PennTreebankCorpus(CorpusKind):
    """What the text has to be.

    :param types: words that it distinguishes, ``<unk>`` among them, the end of a sentence not
    """

    kind: Literal["penn_treebank"] = "penn_treebank"
    types: int = 9_999

    @property
    def languages(self) -> tuple[str]:
        return ("txt",)

    @property
    def sources(self) -> list[str]:
        return list(SEPARATE.values())

    def obtain(self, raw: Path | None, folder: Path) -> Mapping[str, Path]:
        """As of every kind; a user's folder may have the archive instead, or lack the test split."""
        catalogue, names = read_catalogue(), self.sources
        if raw is not None:
            names = [ARCHIVE] if lies_in(raw, catalogue[ARCHIVE]) else names
            names = [name for name in names if name != SEPARATE["test"] or lies_in(raw, catalogue[name])]
        return obtain(names, catalogue, raw, folder)

    def build(self, files: Mapping[str, Path], output: Path, workers: int) -> dict[str, int]:
        return build(files, output, self, workers)


def build(files: Mapping[str, Path], output: Path, options: PennTreebankCorpus, workers: int) -> dict[str, int]:
    """Makes ``train.txt``, ``valid.txt`` and ``test.txt``; returns how many lines each has.

    :param files: the archive, ``ptb``, or ``ptb_train``, ``ptb_valid`` and, where there is one, ``ptb_test``
    :param workers: of no use here: the text is short
    :raises UserError: a file is missing, broken, or not this text
    """
    known: set[str] = set()
    counts = {}
    with atomic_directory(output) as folder:
        for split, (path, member) in _parts(files).items():
            with open(folder / f"{split}.txt", "w", encoding="utf-8", newline="\n") as file:
                counts[split] = 0
                for words, place in _sentences(path, member):
                    if split == "train":
                        known.update(words)
                    elif unknown := [word for word in words if word not in known]:
                        raise UserError(f"{place}: {unknown[0]!r} is no word of the training text")
                    file.write(" ".join(words) + "\n")
                    counts[split] += 1
            if split == "train" and (UNKNOWN not in known or len(known) != options.types):
                without = "" if UNKNOWN in known else f", without {UNKNOWN}"
                raise UserError(
                    f"{path}: {len(known):,} types{without}; Mikolov's text has {options.types:,}, {UNKNOWN} among them"
                )
    return counts


def _parts(files: Mapping[str, Path]) -> dict[str, tuple[Path, str | None]]:
    """Each split's file, and the member of it that is the text."""
    if ARCHIVE in files:
        return {split: (files[ARCHIVE], member) for split, member in MEMBERS.items()}
    if missing := [name for name in (SEPARATE["train"], SEPARATE["valid"]) if name not in files]:
        raise UserError(f"Penn Treebank: no {' and no '.join(missing)}; {ARCHIVE}, the archive, would do instead")
    if SEPARATE["test"] not in files:
        print_progress(f"no {SEPARATE['test']}: the corpus has no test split")
    return {split: (files[name], None) for split, name in SEPARATE.items() if name in files}


def _sentences(path: Path, member: str | None) -> Iterator[tuple[list[str], str]]:
    """The words of each line, and where it is."""
    with reading(path):
        for name, stream in open_texts(path, member):
            for number, line in enumerate(decode_stream(stream, name), start=1):
                place = f"{name}: line {number}"
                if not (words := line.split()):
                    raise UserError(f"{place} is empty")
                yield words, place
