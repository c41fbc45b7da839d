"""What every kind of corpus in a recipe has, and the files of a corpus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self, TextIO

from pydantic import model_validator

from ode_transformer.corpora.download import fingerprint, obtain
from ode_transformer.corpora.sources import read_catalogue
from ode_transformer.support.yaml_file import YamlSection


class CorpusKind(YamlSection):
    """A kind of corpus; a subclass says what its text is made from.

    A corpus folder has a line for each example, and a file for each side:

        train.S train.T valid.S valid.T    with S and T for the languages, tokenised; monolingual text is in train.txt
        test.S test.T                      the first test set; test1.S test1.T, ... further ones
        raw.test.T                         its references as published
        tokens1.test.T raw1.test.T ...     further references, if there are several
    """

    @property
    def languages(self) -> tuple[str, ...]:
        """Suffixes of the sides' files."""
        raise NotImplementedError

    @property
    def sources(self) -> list[str]:
        """Raw files that are needed, by their names in the catalogue."""
        raise NotImplementedError

    @property
    def tests(self) -> list[str]:
        """Names of the test sets."""
        return ["test"]

    def further_references(self, test: str) -> int:
        """How many references a test set has beside its first."""
        return 0

    def obtain(self, raw: Path | None, folder: Path) -> Mapping[str, Path]:
        """The raw files, by name.

        :param raw: the user's folder with them; without it they are downloaded
        :param folder: where downloads go
        :raises UserError: one is missing, or not what it should be
        """
        return obtain(self.sources, read_catalogue(), raw, folder)

    def describe(self, files: Mapping[str, Path], folder: Path) -> list[list[object]]:
        """What tells raw files from others of the same names: name and checksum, or size and time of change.

        :param folder: of downloads, with the records of checksums
        """
        catalogue = read_catalogue()
        return [[name, *fingerprint(path, catalogue[name], folder)] for name, path in sorted(files.items())]

    def build(self, files: Mapping[str, Path], output: Path, workers: int) -> dict[str, int]:
        """Makes the corpus folder, whole or not at all; returns how many lines each split has.

        :raises UserError: a raw file is not what it should be
        """
        raise NotImplementedError


class TwoSidedCorpus(CorpusKind):
    """Examples with two sides.

    :param source: suffix of the source side's files; of a translation, the code of its language
    :param target: likewise
    """

    source: str
    target: str

    @model_validator(mode="after")
    def _two_sides(self) -> Self:
        if self.source == self.target:
            raise ValueError(f"source and target are both {self.source}: their files would be the same")
        return self

    @property
    def languages(self) -> tuple[str, str]:
        return self.source, self.target


def test_split(number: int) -> str:
    """fairseq's names of several test sets: test, test1, test2, ..."""
    return f"test{number or ''}"


class Splits:
    """Writes examples into the files of their splits."""

    def __init__(self, folder: Path, languages: tuple[str, ...]) -> None:
        self.folder, self.languages = folder, languages
        self.files: dict[str, list[TextIO]] = {}
        self.counts: Counter[str] = Counter()

    def __enter__(self) -> Splits:
        self.stack = ExitStack()
        return self

    def __exit__(self, *error: object) -> None:
        self.stack.close()

    def add(self, split: str, sides: tuple[str, ...]) -> None:
        """Writes an example, and counts it."""
        if split not in self.files:
            for language in self.languages:
                path = self.folder / f"{split}.{language}"
                file = open(path, "w", encoding="utf-8", newline="\n")  # noqa: SIM115  the stack closes it
                self.files.setdefault(split, []).append(self.stack.enter_context(file))
        for file, line in zip(self.files[split], sides, strict=True):
            file.write(f"{line}\n")
        self.counts[split] += 1
