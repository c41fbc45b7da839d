"""What is done to each line of a text, and which pairs of lines are kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Literal

import regex
from pydantic import Field, model_validator
from sacremoses import MosesPunctNormalizer

from ode_transformer.corpora.moses import Tokenizer
from ode_transformer.support.yaml_file import YamlSection

ROMANIAN_LETTERS = str.maketrans("ŞşŢţ", "ȘșȚț")  # old fonts wrote a cedilla where Romanian has a comma
ROMANIAN_PLAIN = str.maketrans("ĂăÂâÎîȘșȚț", "AaAaIiSsTt")


class TextSteps(YamlSection):
    """Steps of Moses' preparation, by sacremoses, in this order.

    :param normalise: quotation marks, dashes and spaces to plain ones
    :param printable: characters of control become spaces
    :param romanian: respell: commas below s and t instead of cedillas; plain: no diacritics at all. Romanian only
    :param tokenise: punctuation divided from words, special characters escaped
    :param split_dashes: hyphens within words divided from them, and marked, as @-@
    :param lowercase: no capital letters
    """

    normalise: bool = False
    printable: bool = False
    romanian: Literal["respell", "plain"] | None = None
    tokenise: bool = False
    split_dashes: bool = False
    lowercase: bool = False

    @model_validator(mode="after")
    def _dashes(self) -> TextSteps:
        if self.split_dashes and not self.tokenise:
            raise ValueError("split_dashes is a way to tokenise: it goes with tokenise: true")
        return self

    def steps(self, language: str) -> list[Callable[[str], str]]:
        """The functions from line to line that are asked for."""
        tools = _tools(language)
        spelling = {"respell": [respell], "plain": [respell, without_diacritics], None: []}
        asked: list[tuple[bool, Callable[[str], str]]] = [
            (self.normalise, tools.normalizer.normalize),
            (self.printable, printable),
            *((language == "ro", step) for step in spelling[self.romanian]),
            (self.tokenise, tools.divided if self.split_dashes else tools.tokens),
            (self.lowercase, str.lower),
            (True, single_spaces),
        ]
        return [step for wanted, step in asked if wanted]


class Keep(YamlSection):
    """Which pairs are kept, by the lengths of their two sides, as Moses' clean-corpus-n chooses.

    :param unit: what lengths count: words, before the text is divided into pieces, or pieces
    :param ratio: the longer side may be this many times as long as the shorter one
    """

    unit: Literal["words", "pieces"]
    min: Annotated[int, Field(gt=0)] = 1
    max: Annotated[int, Field(gt=0)]
    ratio: Annotated[float, Field(ge=1)] | None = None

    def __call__(self, source: str, target: str) -> bool:
        shorter, longer = sorted((len(source.split()), len(target.split())))
        in_bounds = self.min <= shorter and longer <= self.max
        return in_bounds and (self.ratio is None or longer <= self.ratio * shorter)


def clean(steps: TextSteps, languages: tuple[str, str], pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Pairs of lines, each side through the steps in its own language."""
    first, second = (steps.steps(language) for language in languages)
    return [(_through(first, source), _through(second, target)) for source, target in pairs]


def _through(steps: list[Callable[[str], str]], line: str) -> str:
    for step in steps:
        line = step(line)
    return line


class _Tools:
    """Sacremoses' tools for one language."""

    def __init__(self, language: str) -> None:
        self.normalizer = MosesPunctNormalizer(language)
        self.tokenizer = Tokenizer(language)

    def tokens(self, line: str) -> str:
        return str(self.tokenizer.tokenize(line, return_str=True))

    def divided(self, line: str) -> str:
        return str(self.tokenizer.tokenize(line, aggressive_dash_splits=True, return_str=True))


@lru_cache  # they are slow to make
def _tools(language: str) -> _Tools:
    return _Tools(language)


def printable(line: str) -> str:
    """Characters of control, of format and unassigned ones become spaces (all of Unicode's class C)."""
    return regex.sub(r"\p{C}", " ", line)


def respell(line: str) -> str:
    return line.translate(ROMANIAN_LETTERS)


def without_diacritics(line: str) -> str:
    return line.translate(ROMANIAN_PLAIN)


def single_spaces(line: str) -> str:
    """No space at the ends, no other character of space: fairseq and BPE divide at spaces of every kind."""
    return " ".join(line.split())
