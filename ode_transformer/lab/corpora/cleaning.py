"""Preparation of lines of text, truecasing, and filters for pairs of lines."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

import regex
from pydantic import Field
from sacremoses import MosesPunctNormalizer, MosesTokenizer, MosesTruecaser

from ode_transformer.support.files import atomic_write
from ode_transformer.support.lines import iterate_lines
from ode_transformer.support.moses import split_last_full_stop
from ode_transformer.support.yaml_file import YamlSection

LONGEST_WORD = 1000  # in characters
ROMANIAN_LETTERS = str.maketrans("ŞşŢţ", "ȘșȚț")  # old fonts wrote a cedilla where Romanian has a comma
ROMANIAN_PLAIN = str.maketrans("ĂăÂâÎîȘșȚț", "AaAaIiSsTt")


class TextPreparation(YamlSection):
    """Changes to a line, applied in this order; those named after Moses' scripts are sacremoses'.

    :param normalise: make quotation marks, dashes and spaces plain (normalize-punctuation)
    :param printable: replace control characters by spaces (remove-non-printing-char)
    :param romanian: in Romanian text, ``respell`` s and t with commas instead of cedillas, or remove all diacritics
        (``plain``)
    :param tokenise: separate punctuation from words and escape special characters (tokenizer)
    :param split_dashes: separate hyphens within words, as @-@; goes with ``tokenise``
    :param split_last_full_stop: separate it from abbreviations, too, as Moses' tokenizer does since November 2018
    :param lowercase: replace capital letters
    """

    normalise: bool = False
    printable: bool = False
    romanian: Literal["respell", "plain"] | None = None
    tokenise: bool = False
    split_dashes: bool = False
    split_last_full_stop: Annotated[bool, Field(exclude_if=lambda split: not split)] = False
    lowercase: bool = False

    def prepare(self, line: str, language: str) -> str:
        """Return a line after the chosen changes."""
        if self.normalise:
            line = moses_normalizer(language).normalize(line)
        if self.printable:
            line = replace_control_characters(line)
        if self.romanian and language == "ro":
            line = line.translate(ROMANIAN_LETTERS)
            if self.romanian == "plain":
                line = line.translate(ROMANIAN_PLAIN)
        if self.tokenise:
            tokenizer = moses_tokenizer(language)
            line = tokenizer.tokenize(line, aggressive_dash_splits=self.split_dashes, return_str=True)
        if self.split_last_full_stop:
            line = split_last_full_stop(line)
        return single_spaces(line.lower() if self.lowercase else line)

    def prepare_pairs(self, languages: tuple[str, str], pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return pairs of lines after the changes, each side in its language."""
        return [(self.prepare(source, languages[0]), self.prepare(target, languages[1])) for source, target in pairs]


class Keep(YamlSection):
    """Filter of pairs by the lengths of their sides, as in Moses' clean-corpus-n, which also limits that of a word.

    :param unit: of lengths: words, before the text is divided into pieces, or pieces
    :param ratio: largest length of the longer side relative to the shorter one
    """

    unit: Literal["words", "pieces"]
    min: Annotated[int, Field(gt=0)] = 1
    max: Annotated[int, Field(gt=0)]
    ratio: Annotated[float, Field(ge=1)] | None = None

    def __call__(self, source: str, target: str) -> bool:
        sides = source.split(), target.split()
        shorter, longer = sorted(map(len, sides))
        in_bounds = self.min <= shorter and longer <= self.max
        if not in_bounds or (self.ratio is not None and longer > self.ratio * shorter):
            return False
        return max(len(source), len(target)) <= LONGEST_WORD or max(map(len, chain(*sides))) <= LONGEST_WORD


class EditedPairs(YamlSection):
    """Rule that leaves out pairs whose sides are the same."""

    edited: Literal[True] = True

    def __call__(self, source: str, target: str) -> bool:
        return source != target


class Tokenizer(MosesTokenizer):
    """Sacremoses' version of Moses' tokenizer, several times as fast on lines of several sentences; the same tokens.

    At every full stop within a line, sacremoses tests whether a lower-case letter follows, and for each test builds
    the set of all lower-case letters. Here the sets are built once.

    :param lang: language code, which decides on abbreviations and apostrophes
    """

    def __init__(self, lang: str) -> None:
        super().__init__(lang)
        self.islower = frozenset(self.IsLower).issuperset
        letters = frozenset(self.IsAlpha)
        self.isanyalpha = lambda text: not letters.isdisjoint(text)


moses_normalizer, moses_tokenizer = cache(MosesPunctNormalizer), cache(Tokenizer)  # they are slow to make


def replace_control_characters(line: str) -> str:
    """Replace control, format and unassigned characters (Unicode's class C) by spaces."""
    return regex.sub(r"\p{C}", " ", line)


def single_spaces(line: str) -> str:
    """Replace white space of every kind by single spaces: fairseq and BPE split at all of it."""
    return " ".join(line.split())


def truecase_files(training: Path, texts: Sequence[Path]) -> None:
    """Rewrite texts of Moses' tokens by its truecaser: the first word of a sentence as it is written within one.

    :param training: text in which the cases of words are counted; it can be one of the texts
    """
    moses = MosesTruecaser()
    cases: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for line in iterate_lines(training):  # MosesTruecaser.train would hold all words in memory
        for word, case, weight in moses.learn_truecase_weights(line.split()):
            cases[word][case] += weight
    moses.model = moses._casing_to_model(cases)
    for text in texts:
        with atomic_write(text) as file:
            for line in iterate_lines(text):
                file.write(f"{moses.truecase(line, return_str=True, use_known=True)}\n".encode())
