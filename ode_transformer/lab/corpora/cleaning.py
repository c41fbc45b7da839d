"""Preparation of lines of text, and a filter for pairs of lines."""

from collections.abc import Callable
from functools import cache, partial
from itertools import chain
from typing import Annotated, Literal

import regex
from pydantic import Field
from sacremoses import MosesPunctNormalizer, MosesTokenizer

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
    :param lowercase: replace capital letters
    """

    normalise: bool = False
    printable: bool = False
    romanian: Literal["respell", "plain"] | None = None
    tokenise: bool = False
    split_dashes: bool = False
    lowercase: bool = False

    def functions(self, language: str) -> list[Callable[[str], str]]:
        """Return the chosen functions from line to line, for a language."""
        tokenise = partial(_tokenizer(language).tokenize, aggressive_dash_splits=self.split_dashes, return_str=True)
        respelt = language == "ro" and self.romanian is not None
        choices: list[tuple[bool, Callable[[str], str]]] = [
            (self.normalise, _normalizer(language).normalize),
            (self.printable, replace_control_characters),
            (respelt, lambda line: line.translate(ROMANIAN_LETTERS)),
            (respelt and self.romanian == "plain", lambda line: line.translate(ROMANIAN_PLAIN)),
            (self.tokenise, tokenise),
            (self.lowercase, str.lower),
            (True, single_spaces),
        ]
        return [function for chosen, function in choices if chosen]


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


def prepare_pairs(
    preparation: TextPreparation, languages: tuple[str, str], pairs: list[tuple[str, str]]
) -> list[tuple[str, str]]:
    """Return pairs of lines after preparation, each side in its language."""
    source_functions, target_functions = (preparation.functions(language) for language in languages)
    return [(_apply(source_functions, source), _apply(target_functions, target)) for source, target in pairs]


def _apply(functions: list[Callable[[str], str]], line: str) -> str:
    for function in functions:
        line = function(line)
    return line


class Tokenizer(MosesTokenizer):
    """Sacremoses' version of Moses' tokenizer, several times as fast on lines of several sentences; the same tokens.

    At every full stop within a line, sacremoses tests whether a lower-case letter follows, and for each test builds
    the set of all lower-case letters. Here the sets are built once.

    :param lang: language code, which decides on abbreviations and apostrophes
    """

    def __init__(self, lang: str) -> None:
        super().__init__(lang)
        self._small = frozenset(self.IsLower)
        self._letters = frozenset(self.IsAlpha)

    def islower(self, text: str) -> bool:
        return self._small.issuperset(text)

    def isanyalpha(self, text: str) -> bool:
        return not self._letters.isdisjoint(text)


_normalizer, _tokenizer = cache(MosesPunctNormalizer), cache(Tokenizer)  # they are slow to make


def replace_control_characters(line: str) -> str:
    """Replace control, format and unassigned characters (Unicode's class C) by spaces."""
    return regex.sub(r"\p{C}", " ", line)


def single_spaces(line: str) -> str:
    """Replace white space of every kind by single spaces: fairseq and BPE split at all of it."""
    return " ".join(line.split())
