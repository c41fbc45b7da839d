"""The interface of a metric: a function of a system's output and of settings, some of which it requires."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ode_transformer.support.errors import UserError

Lines = Sequence[str]
Sums = NDArray[np.float64]


@dataclass(frozen=True)
class Score:
    """A measured number.

    :param value: in the published unit: mostly per cent (an error rate can exceed 100), a perplexity as it is
    :param signature: the settings that the number depends on
    :param detail: the numbers behind the value
    :param sentences: number of scored lines; None if the input does not say it
    """

    metric: str
    value: float
    signature: str
    detail: str
    sentences: int | None

    def __str__(self) -> str:
        lines = "" if self.sentences is None else f"{self.sentences} lines; "
        return f"{self.metric} {self.value:.2f} ({self.detail}; {lines}{self.signature})"


@dataclass(frozen=True)
class SentenceStatistics:
    """Numbers of each sentence, such as errors, whose sums give the score of any selection of sentences.

    :param numbers: [sentences, numbers]
    :param score: from the sums, [numbers], to the score
    """

    numbers: NDArray[np.float64]
    score: Callable[[Sums], Score]

    def total(self) -> Score:
        """Return the score of all sentences."""
        return self.score(self.numbers.sum(axis=0))


@dataclass(frozen=True)
class Settings:
    """The inputs of a score besides the output: options of ``ode-transformer score``, whose help explains them.

    :param references: the correct output, a line for each line of the hypotheses
    :param more_references: further correct outputs, each like ``references``
    :raises UserError: two settings exclude each other
    """

    references: Lines | None = None
    more_references: tuple[Lines, ...] = ()
    tokenize: str | None = None
    lowercase: bool = False
    compound_split: bool = False
    flavour: str | None = None
    detokenize: str | None = None
    sentences: str = "period"
    eval_lm_log: Path | None = None
    pieces: bool = False
    gold: Path | None = None

    def __post_init__(self) -> None:
        tokens = self.tokenize == "none"
        conflicts = {
            "--flavour with --tokenize, --compound-split or --detokenize": self.flavour is not None
            and (self.tokenize is not None or self.compound_split or self.detokenize is not None),
            "--compound-split without --tokenize none": self.compound_split and not tokens,
            "--detokenize with --tokenize none": self.detokenize is not None and tokens,
        }
        if chosen := [conflict for conflict, is_chosen in conflicts.items() if is_chosen]:
            raise UserError(f"{chosen[0]}: these settings exclude each other")


@dataclass(frozen=True)
class Metric:
    """A metric, called with hypotheses and settings.

    :param function: ``(hypotheses, settings) -> scores``
    :param needs: the required fields of Settings, and ``hypotheses`` if it requires them
    :param options: the optional fields of Settings that it uses
    :param scores: their number; None if it depends on the output
    :param statistics: ``(hypotheses, settings)`` -> what the score of any selection of sentences follows from, for the
        paired bootstrap test; None if systems are not compared by this metric
    """

    function: Callable[[Lines, Settings], list[Score]]
    needs: tuple[str, ...] = ("hypotheses", "references")
    options: tuple[str, ...] = ()
    scores: int | None = 1
    statistics: Callable[[Lines, Settings], SentenceStatistics] | None = None

    def uses(self, name: str) -> bool:
        """Return whether the scores depend on a field of Settings, or on ``hypotheses``."""
        return name in self.needs or name in self.options

    def select_settings(self, settings: Settings) -> Settings:
        """Return a copy in which every field that this metric ignores has its default."""
        values = {field.name: getattr(settings, field.name) for field in fields(Settings) if self.uses(field.name)}
        return Settings(**values)

    def sentence_statistics(self, hypotheses: Lines, settings: Settings) -> SentenceStatistics:
        """Return what the score of any selection of sentences follows from; the metric has ``statistics``."""
        assert self.statistics is not None
        return self.statistics(hypotheses, self.select_settings(settings))

    def __call__(self, hypotheses: Lines, settings: Settings) -> list[Score]:
        return self.function(hypotheses, self.select_settings(settings))


def check_line_counts(hypotheses: Lines, *references: Sequence[object]) -> None:
    """Check that there is one reference, or annotated sentence, of each kind for each hypothesis."""
    lengths = {len(lines) for lines in references}
    if not hypotheses or lengths != {len(hypotheses)}:
        raise UserError(f"{len(hypotheses)} hypotheses, but {' and '.join(map(str, sorted(lengths)))} references")


def paired_references(hypotheses: Lines, settings: Settings) -> Lines:
    """Return the references after checking that there is one for each hypothesis."""
    references = settings.references or []
    check_line_counts(hypotheses, references, *settings.more_references)
    return references


def check_word_pairs(output: int, right: int, limit: int, location: str) -> None:
    """Refuse two long lines before a table of all pairs of their words fills the memory.

    :param output: number of words of the system's line
    :param right: number of words of the correct line, or of the source
    :param location: names the line in the error
    :raises UserError: there are more than ``limit`` pairs
    """
    if output * right > limit:
        side = math.isqrt(limit)
        pairs = f"at most {limit:,} pairs of words are compared, as of two lines of {side:,}"
        raise UserError(f"{location}: lines of {output:,} and {right:,} words are too long: {pairs}")
