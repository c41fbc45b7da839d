"""What a measure of a system's output is: a function of the output and of settings, some of which it needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from ode_transformer.metrics.significance import Resampled
from ode_transformer.support.errors import UserError

Lines = Sequence[str]


@dataclass(frozen=True)
class Score:
    """One measured number.

    :param value: as it is published: most in per cent (an error rate can exceed 100), a perplexity as it is
    :param signature: the settings without which the number means nothing
    :param detail: what the number is made of
    :param sentences: how many lines were scored; None where the input does not tell
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
class Settings:
    """What a score depends on beside the output: the files and options of ``ode-transformer score``.

    :param references: the right output, a line for each line of the hypotheses
    :param more_references: other outputs that are as right, each like ``references``
    :param tokenize: how sacrebleu divides text into words; none: at its spaces
    :param lowercase: ignore case
    :param compound_split: divide compounds at their hyphens (``##AT##-##AT##``)
    :param detokenize: the language by whose rules tokenised hypotheses become text first
    :param sentences: how a summary's line is divided into sentences, a key of ``rouge.SENTENCES``
    :param eval_lm_log: what fairseq-eval-lm printed
    :param gold: M2 file of annotated corrections
    :param verbose: print what is found in every sentence
    :raises UserError: two of them exclude each other
    """

    references: Lines | None = None
    more_references: tuple[Lines, ...] = ()
    tokenize: str = "13a"
    lowercase: bool = False
    compound_split: bool = False
    detokenize: str | None = None
    sentences: str = "period"
    eval_lm_log: Path | None = None
    gold: Path | None = None
    verbose: bool = False

    def __post_init__(self) -> None:
        if self.compound_split and self.tokenize != "none":
            raise UserError("--compound-split divides tokens: it goes with --tokenize none")
        if self.detokenize and self.tokenize == "none":
            raise UserError("--detokenize makes text that is not tokenised: it does not go with --tokenize none")


@dataclass(frozen=True)
class Metric:
    """A measure.

    :param function: ``(hypotheses, settings) -> scores``
    :param needs: ``hypotheses``, and the fields of Settings without which there is no score
    :param options: the other fields that it reads
    :param compare: ``(systems, settings, samples, seed)``: the paired bootstrap test of each against the first
    """

    function: Callable[[Lines, Settings], list[Score]]
    needs: tuple[str, ...] = ("hypotheses", "references")
    options: tuple[str, ...] = ()
    compare: Callable[[Sequence[Lines], Settings, int, int], list[Resampled]] | None = None

    def reads(self, name: str) -> bool:
        """Whether the scores depend on this field of Settings, or on the hypotheses."""
        return name in self.needs or name in self.options

    def own(self, settings: Settings) -> Settings:
        """Those of the settings that this measure reads, and the defaults of the others."""
        values = {field.name: getattr(settings, field.name) for field in fields(Settings) if self.reads(field.name)}
        return Settings(**values)

    def __call__(self, hypotheses: Lines, settings: Settings) -> list[Score]:
        return self.function(hypotheses, self.own(settings))


def paired_references(hypotheses: Lines, settings: Settings) -> Lines:
    """The references, of which there is one for each hypothesis.

    :raises UserError: there are more, fewer or none
    """
    references = settings.references
    if references is None:
        raise UserError("no references to score against")
    for lines in (references, *settings.more_references):
        if len(hypotheses) != len(lines):
            raise UserError(f"{len(hypotheses)} hypotheses, but {len(lines)} references")
    if not references:
        raise UserError("nothing to score: the references are empty")
    return references
