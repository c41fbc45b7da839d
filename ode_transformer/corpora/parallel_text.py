"""What the built-in corpora share: a split that never moves, and files that are all there or not at all.

A corpus is a directory of plain UTF-8 text, one example per line, the sides aligned by line number:

    train.en  train.de  valid.en  valid.de  test.en  test.de
    corpus.json    counts and origins for programs; written last, so its presence means the rest is whole
    SOURCES.md     the same for people: which packages the text comes from and under which licences
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ode_transformer.support.errors import UserError
from ode_transformer.support.files import write_files

SPLITS = ("train", "valid", "test")


class CorpusError(UserError):
    """The corpus cannot be made; the message is one line that names the file or the flag."""


@dataclass(frozen=True)
class Pair:
    """One example: a line of source text and the line of target text that belongs to it."""

    source: str
    target: str


@dataclass(frozen=True)
class Origin:
    """A package that text came from: ``pairs`` kept pairs occur in it, ``alone`` of them nowhere else."""

    package: str
    version: str
    licence: str
    pairs: int
    alone: int


@dataclass(frozen=True)
class Shares:
    """Fractions of the examples held out for validation and test; the rest is for training."""

    valid: float
    test: float

    def __post_init__(self) -> None:
        if min(self.valid, self.test) <= 0 or self.valid + self.test >= 1:
            raise ValueError(f"held-out shares {self.valid} and {self.test} leave a split empty")


def normalise(text: str) -> str:
    """The key under which two texts count as the same: no case, no punctuation, single spaces."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    # A combining mark is part of its letter, in Hindi as in decomposed German.
    kept = (c if c.isalnum() or unicodedata.category(c)[0] == "M" else " " for c in folded)
    return " ".join("".join(kept).split())


def digest(source: str) -> int:
    """A 64-bit number that depends on the normalised text alone, not on machine, run or other examples."""
    return int.from_bytes(hashlib.blake2b(normalise(source).encode(), digest_size=8).digest(), "big")


def split_of(source: str, shares: Shares) -> str:
    """Name of the split that ``source`` belongs to; the same text always goes the same way."""
    position = digest(source) / 2**64
    if position < shares.valid:
        return "valid"
    return "test" if position < shares.valid + shares.test else "train"


def divide(pairs: Iterable[Pair], shares: Shares) -> dict[str, list[Pair]]:
    """Pairs by split, each in the order of its hash: shuffled, yet the same on every machine.

    :raises CorpusError: two pairs share a normalised source, or a split is empty.
    """
    by_split: dict[str, list[Pair]] = {name: [] for name in SPLITS}
    seen: set[str] = set()
    for pair in pairs:
        key = normalise(pair.source)
        if key in seen:
            raise CorpusError(f"two pairs have the same source: {pair.source!r}")
        seen.add(key)
        by_split[split_of(pair.source, shares)].append(pair)
    for name, members in by_split.items():
        if not members:
            raise CorpusError(f"{len(seen)} pairs are too few: nothing is left for the {name} split")
        members.sort(key=lambda pair: (digest(pair.source), pair.source))
    return by_split


def write_corpus(
    directory: Path,
    pairs: Iterable[Pair],
    languages: tuple[str, str],
    shares: Shares,
    title: str,
    origins: Sequence[Origin],
) -> dict[str, int]:
    """Write the corpus into ``directory`` and return the number of pairs by split.

    Every file is finished in a hidden directory beside its destination before the first is moved into place.

    :raises CorpusError: as ``divide``, or when the directory cannot be written.
    """
    by_split = divide(pairs, shares)
    counts = {name: len(by_split[name]) for name in SPLITS}
    files = {
        f"{name}.{language}": "".join(f"{getattr(pair, side)}\n" for pair in by_split[name])
        for name in SPLITS
        for side, language in zip(("source", "target"), languages, strict=True)
    }
    summary = {
        "title": title,
        "source": languages[0],
        "target": languages[1],
        "shares": asdict(shares),
        "pairs": counts,
        "source_words": {n: sum(len(p.source.split()) for p in by_split[n]) for n in SPLITS},
        "origins": [asdict(origin) for origin in origins],
    }
    files["SOURCES.md"] = sources_text(title, counts, origins)
    files["corpus.json"] = json.dumps(summary, indent=2, ensure_ascii=False) + "\n"
    try:
        write_files(directory, files, last="corpus.json")
    except OSError as error:
        raise CorpusError(f"{directory}: cannot write the corpus: {error.strerror or error}") from error
    return counts


def sources_text(title: str, counts: dict[str, int], origins: Sequence[Origin]) -> str:
    """The text of SOURCES.md: counts, then a table of packages with their licences."""
    lines = [f"# {title}", "", ", ".join(f"{counts[name]:,} {name}" for name in SPLITS) + " pairs", ""]
    lines += ["| package | version | licence | pairs | only here |", "|---|---|---|---:|---:|"]
    for o in origins:
        licence = o.licence.replace("|", "/")
        lines.append(f"| {o.package} | {o.version} | {licence} | {o.pairs:,} | {o.alone:,} |")
    lines += [
        "",
        "The text stays under the licence of the package it comes from. A pair that several packages",
    ]
    lines += ["contain counts in the column `pairs` of each."]
    return "\n".join(lines) + "\n"
