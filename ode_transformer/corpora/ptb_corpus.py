"""Penn Treebank for language models, as Mikolov et al. (2010) prepared it.

The text is in lower case, without punctuation, with ``N`` for numbers and ``<unk>`` for rare words. 9,998 words,
``<unk>`` and the end of a sentence make 10,000 types. The raw files are Mikolov's archive, or its three text files; the
corpus has the same lines, each a sentence.

In this text ``<unk>`` is a word, which a model has to predict and perplexity counts. fairseq writes its symbol for
unknown words in the same way, so fairseq-preprocess gives ``<unk>`` that symbol's number (3) and no line in
``dict.txt``; training, generation and fairseq-eval-lm treat it like any word. A word that is missing in the training
text would also count as ``<unk>`` and lower the perplexity, so a text with such a word is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from ode_transformer.corpora.corpus import CorpusKind, SplitWriter
from ode_transformer.corpora.download import find_in_folder, obtain_files
from ode_transformer.corpora.raw_archives import open_texts
from ode_transformer.corpora.sources import AnySource
from ode_transformer.support.console import print_progress
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import atomic_directory
from ode_transformer.support.lines import decode_stream

ARCHIVE = "ptb"
MEMBERS = {split: f"simple-examples/data/ptb.{split}.txt" for split in ("train", "valid", "test")}
SEPARATE = {split: f"ptb_{split}" for split in MEMBERS}
UNKNOWN = "<unk>"


class PennTreebankCorpus(CorpusKind):
    """Settings of the Penn Treebank corpus.

    :param types: number of different words that the training text must have, counting ``<unk>``, but not the end of a
        sentence
    """

    kind: Literal["penn_treebank"] = "penn_treebank"
    types: int = 9_999

    @property
    def languages(self) -> tuple[str]:
        return ("txt",)

    @property
    def sources(self) -> list[str]:
        return list(SEPARATE.values())

    def obtain(self, sources: Mapping[str, AnySource], raw: Path | None, folder: Path) -> Mapping[str, Path]:
        """As in the base class, but the user's folder may have the archive instead of the three files.

        The test split may be missing in it.
        """
        names = self.sources
        if raw is not None:
            names = [ARCHIVE] if find_in_folder(raw, sources[ARCHIVE]) else names
            names = [name for name in names if name != SEPARATE["test"] or find_in_folder(raw, sources[name])]
        return obtain_files(names, sources, raw, folder)

    def build(self, files: Mapping[str, Path], output: Path, workers: int) -> dict[str, int]:
        """Write ``train.txt``, ``valid.txt`` and ``test.txt``.

        :param files: ``ptb``, the archive, or ``ptb_train``, ``ptb_valid`` and, if present, ``ptb_test``
        :returns: number of lines in each split
        :raises UserError: a file is missing, broken, or not this text
        """
        types: set[str] = set()
        with atomic_directory(output) as folder, SplitWriter(folder, self.languages) as splits:
            for split, (path, member) in _split_texts(files).items():
                for sentence, line_name in _sentences(path, member):
                    if split == "train":
                        types.update(sentence)
                    elif unknown := [word for word in sentence if word not in types]:
                        raise UserError(f"{line_name}: {unknown[0]!r} is no word of the training text")
                    splits.add(split, (" ".join(sentence),))
                if split == "train" and (UNKNOWN not in types or len(types) != self.types):
                    without = "" if UNKNOWN in types else f", without {UNKNOWN}"
                    raise UserError(
                        f"{path}: {len(types):,} types{without}; "
                        f"Mikolov's text has {self.types:,}, {UNKNOWN} among them"
                    )
                splits.check_filled(split, files=[path])
        return dict(splits.counts)


def _split_texts(files: Mapping[str, Path]) -> dict[str, tuple[Path, str | None]]:
    """Return the file of each split and, if the file is the archive, the member."""
    if ARCHIVE in files:
        return {split: (files[ARCHIVE], member) for split, member in MEMBERS.items()}
    if missing := [name for name in (SEPARATE["train"], SEPARATE["valid"]) if name not in files]:
        raise UserError(f"Penn Treebank: no {' and no '.join(missing)}; {ARCHIVE}, the archive, would do instead")
    if SEPARATE["test"] not in files:
        print_progress(f"no {SEPARATE['test']}: the corpus has no test split")
    return {split: (files[name], None) for split, name in SEPARATE.items() if name in files}


def _sentences(path: Path, member: str | None) -> Iterator[tuple[list[str], str]]:
    """Yield the words of each line, and the line's name for errors."""
    for name, stream in open_texts(path, member):
        for number, line in enumerate(decode_stream(stream, name), start=1):
            line_name = f"{name}: line {number}"
            if not (sentence := line.split()):
                raise UserError(f"{line_name} is empty")
            yield sentence, line_name
