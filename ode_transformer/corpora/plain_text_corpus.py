"""Plain text for language models: a sentence or a paragraph on each line, as it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from ode_transformer.corpora.cleaning import single_spaces
from ode_transformer.corpora.corpus import CorpusKind, SplitWriter, test_split_name
from ode_transformer.corpora.raw_archives import read_texts
from ode_transformer.support.files import atomic_directory

SourceNames = Annotated[list[str], Field(min_length=1)]


class PlainTextCorpus(CorpusKind):
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
    def languages(self) -> tuple[str]:
        return ("txt",)

    @property
    def sources(self) -> list[str]:
        return list(
            dict.fromkeys([*self.train, *self.valid, *(name for names in self.test.values() for name in names)])
        )

    @property
    def tests(self) -> list[str]:
        return list(self.test)

    def build(self, files: Mapping[str, Path], output: Path, workers: int) -> dict[str, int]:
        tests = {test_split_name(number): names for number, names in enumerate(self.test.values())}
        with atomic_directory(output) as folder, SplitWriter(folder, self.languages) as splits:
            for split, names in {"train": self.train, "valid": self.valid, **tests}.items():
                for line in text_lines([files[name] for name in names]):
                    splits.add(split, (line,))
                splits.check_filled(split, files=[files[name] for name in names])
        return dict(splits.counts)


def text_lines(paths: Sequence[Path]) -> Iterator[str]:
    """Yield the lines of texts, compressed or not, that are not empty."""
    for path in paths:
        yield from filter(None, map(single_spaces, read_texts(path)))
