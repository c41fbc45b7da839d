"""Base classes of the kinds of corpus that a recipe can name, and the writer of corpus files."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, TextIO

from pydantic import Field

from ode_transformer.lab.corpora.cleaning import EditedPairs, Keep
from ode_transformer.lab.corpora.download import Sources, file_identity, obtain_files
from ode_transformer.lab.corpora.raw_text import Files
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import atomic_directory
from ode_transformer.support.yaml_file import YamlSection

Suffix = Annotated[str, Field(pattern=r"^\w[\w.-]*$")]


class SplitWriter(ExitStack):
    """Writer of examples into the files of their splits, which are complete when it is closed."""

    def __init__(self, folder: Path, languages: tuple[str, ...]) -> None:
        super().__init__()
        self.folder, self.languages = folder, languages
        self.files: dict[str, list[TextIO]] = {}
        self.counts: Counter[str] = Counter()

    def add(self, split: str, sides: tuple[str, ...]) -> None:
        """Write an example, a side to each file, and count it."""
        if split not in self.files:
            paths = [self.folder / f"{split}.{language}" for language in self.languages]
            self.files[split] = [self.enter_context(path.open("w", encoding="utf-8", newline="\n")) for path in paths]
        for file, line in zip(self.files[split], sides, strict=True):
            file.write(f"{line}\n")
        self.counts[split] += 1

    def check_filled(self, *names: str, files: Iterable[Path] = ()) -> None:
        """Check that splits have examples; the error names the files they come from."""
        if empty := [split for split in names if not self.counts[split]]:
            origin = ", ".join(map(str, files))
            left_out = self.counts["left out"]
            rule = f"; left out by the corpus's rules, such as keep: {left_out:,}" if left_out else ""
            raise UserError(f"{origin}{': ' if origin else ''}no example for the {empty[0]} split{rule}")


class CorpusKind(YamlSection):
    """Kind of corpus; a subclass makes it from its raw files.

    A corpus folder has a file for each side of each split, and in it a line for each example:

        train.S train.T valid.S valid.T    S and T are the languages; tokenised; monolingual text is in train.txt
        test.S test.T                      first test set; further ones are test1.S test1.T, ...
        raw.test.T                         references of the test set as published
        tokens1.test.T raw1.test.T ...     further references, tokenised and as published
        test.m2                            corrections of the test set, of corpora of corrections
    """

    @property
    @abstractmethod
    def languages(self) -> tuple[str, ...]:
        """Suffix of each side's files."""

    @property
    @abstractmethod
    def sources(self) -> list[str]:
        """Names of the raw files in the source list."""

    @property
    def tests(self) -> list[str]:
        return ["test"]

    def further_references(self, test: str) -> int:
        """Return the number of references that a test set has besides its first."""
        return 0

    @property
    def piece_filter(self) -> Keep | EditedPairs | None:
        """Rule that leaves out examples after their division into pieces, in the splits that ``filters`` names."""
        return None

    def filters(self, split: str) -> bool:
        """Return whether examples of a split are left out by their lengths, or by other rules."""
        return False

    def obtain(self, sources: Sources, raw: Path | None, folder: Path) -> Files:
        """Return the raw files, of the user's folder ``raw`` or, without one, downloaded if necessary."""
        return obtain_files(self.sources, sources, raw, folder)

    def describe(self, files: Files, sources: Sources, folder: Path) -> list[list[object]]:
        """Return values that change when a raw file does: name and checksum, or name, size and modification time."""
        return [[name, *file_identity(path, sources[name], folder)] for name, path in sorted(files.items())]

    def build(self, files: Files, output: Path, workers: int) -> dict[str, int]:
        """Make the corpus folder, complete or not at all.

        :returns: number of lines in each split, and of pairs that were left out
        """
        with atomic_directory(output, replaces=True) as folder, SplitWriter(folder, self.languages) as splits:
            self.write(files, splits, workers)
        return dict(splits.counts)

    @abstractmethod
    def write(self, files: Files, splits: SplitWriter, workers: int) -> None:
        """Write the examples, and further files into the writer's folder."""


class TwoSidedCorpus(CorpusKind):
    """Corpus whose examples have two sides.

    :param source: suffix of the source side's files, which is the language code if the corpus is for translation
    :param target: suffix of the target side's files
    """

    source: Suffix
    target: Suffix

    @property
    def languages(self) -> tuple[str, str]:
        return self.source, self.target


def fairseq_test_split(number: int) -> str:
    """Return fairseq's name of a test set: test, test1, test2, ..."""
    return f"test{number or ''}"
