"""Documents of plain text for masked language models: one sentence a line, blank lines between documents.

In a file without blank lines every line is a document. Whole documents are held out for validation. Files are
streamed: they may be larger than memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from ode_transformer.corpora.corpus import CorpusKind
from ode_transformer.corpora.parallel_text import text_hash
from ode_transformer.corpora.raw_archives import read_texts
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import atomic_directory

SPLITS = ("train", "valid")


class DocumentCorpus(CorpusKind):
    """Settings of a corpus of documents.

    :param texts: names of the raw files in the source list
    :param valid_share: share of the documents that is held out
    """

    kind: Literal["documents"] = "documents"
    texts: Annotated[list[str], Field(min_length=1)]
    valid_share: Annotated[float, Field(gt=0, lt=1)]

    @property
    def languages(self) -> tuple[str]:
        return ("txt",)

    @property
    def sources(self) -> list[str]:
        return self.texts

    @property
    def tests(self) -> list[str]:
        return []

    def build(self, files: Mapping[str, Path], output: Path, workers: int) -> dict[str, int]:
        with atomic_directory(output) as folder:
            return write_splits([files[name] for name in self.texts], self.valid_share, folder, ".txt")


def documents(paths: Sequence[Path]) -> Iterator[list[str]]:
    """Yield the lines of each document, stripped; in a file without inner blank lines every line is a document.

    :raises UserError: a line is not UTF-8
    """
    for path in paths:
        has_blank_lines = _has_inner_blank_line(path)
        document: list[str] = []
        for line in _stripped_lines(path):
            if line:
                document.append(line)
            if document and not (line and has_blank_lines):
                yield document
                document = []
        if document:
            yield document


def _has_inner_blank_line(path: Path) -> bool:
    """Return True if a blank line stands between two lines that are not blank."""
    text_seen = blank_seen = False
    for line in _stripped_lines(path):
        if line and blank_seen:
            return True
        text_seen = text_seen or bool(line)
        blank_seen = text_seen and not line
    return False


def _stripped_lines(path: Path) -> Iterator[str]:
    return map(str.strip, read_texts(path))


def write_splits(paths: Sequence[Path], valid_share: float, output: Path, suffix: str = "") -> dict[str, int]:
    """Write ``train`` and ``valid`` into a folder, with a blank line after each document of several lines.

    :param suffix: of the files
    :returns: number of lines of each split
    :raises UserError: a split has no document
    """
    counts, lines = dict.fromkeys(SPLITS, 0), dict.fromkeys(SPLITS, 0)
    files = {split: open(output / f"{split}{suffix}", "w", encoding="utf-8") for split in SPLITS}  # noqa: SIM115
    try:
        for document in documents(paths):
            # The prefix makes this split independent of the corpora's own, which hash the text alone.
            held_out = text_hash("pre-training " + "\n".join(document)) < valid_share * 2**64
            split = "valid" if held_out else "train"
            counts[split] += 1
            files[split].write("\n".join(document) + ("\n" if len(document) == 1 else "\n\n"))
            lines[split] += len(document) + (len(document) > 1)
    finally:
        for file in files.values():
            file.close()
    print(", ".join(f"{count:,} documents to {name}" for name, count in counts.items()))
    for split, count in counts.items():
        if not count:
            hint = f" with a share of {valid_share:g} for validation" if split == "valid" else ""
            raise UserError(f"{', '.join(map(str, paths))}: no document for the {split} split{hint}")
    return lines
