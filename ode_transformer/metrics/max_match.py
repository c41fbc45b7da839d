"""MaxMatch (M2): agreement of a system's corrections with those of annotators (Dahlmeier & Ng 2012).

    P = correct / system edits,   R = correct / gold edits,   F = (1 + β²) P R / (β² P + R)

of the edits that ``edit_lattice`` defines, summed over all sentences. P and R are 1 if the divisor is 0. Of several
annotators, each sentence is scored with the one who makes F of all sentences up to it highest; among equals, the one
with most correct edits, then with the smallest (system edits + β² gold edits), then the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ode_transformer.metrics.edit_lattice import (
    MAX_UNCHANGED,
    EditLattice,
    StepBudget,
    SystemEdit,
    Tokens,
    TooManySteps,
)
from ode_transformer.metrics.m2_file import AnnotatedSentence, Edit, check_sentence_count, max_annotators, read_m2
from ode_transformer.metrics.metric import Lines, Score, Settings
from ode_transformer.support.console import print_progress
from ode_transformer.support.errors import UserError

BETA = 0.5
MAX_CELLS = 250_000  # tokens of the source times tokens of the hypothesis
# Steps of the search: what each sentence adds to the budget of all, and the most that one may take, some seconds. A
# paragraph of 360 tokens with 40 edits takes 11,000 for each annotator.
STEPS_PER_SENTENCE, MAX_STEPS = 100_000, 2_000_000


@dataclass(frozen=True)
class Counts:
    """Numbers of edits, and the scores that follow from them."""

    correct: int = 0
    proposed: int = 0
    gold: int = 0

    def __add__(self, counts: Counts) -> Counts:
        return Counts(self.correct + counts.correct, self.proposed + counts.proposed, self.gold + counts.gold)

    @property
    def precision(self) -> float:
        return self.correct / self.proposed if self.proposed else 1.0

    @property
    def recall(self) -> float:
        return self.correct / self.gold if self.gold else 1.0

    def f_score(self, beta: float) -> float:
        """Compute F_β, in a form without P and R that is also defined if one of their divisors is 0."""
        divisor = self.proposed + beta**2 * self.gold
        return (1 + beta**2) * self.correct / divisor if divisor else 1.0


@dataclass(frozen=True)
class MatchedSentence:
    """A sentence with the system's edits and its annotator."""

    source: AnnotatedSentence
    hypothesis: tuple[str, ...]
    annotator: int
    edits: tuple[SystemEdit, ...]

    @property
    def gold(self) -> tuple[Edit, ...]:
        return self.source.edits.get(self.annotator, ())

    @property
    def counts(self) -> Counts:
        return Counts(sum(edit.correct for edit in self.edits), len(self.edits), len(self.gold))

    def __str__(self) -> str:
        counts = self.counts
        lines = {
            "source": " ".join(self.source.tokens),
            "hypothesis": " ".join(self.hypothesis),
            "system edits": "; ".join(map(str, self.edits)),
            "correct edits": "; ".join(str(edit) for edit in self.edits if edit.correct),
            f"gold edits of annotator {self.annotator}": "; ".join(map(str, self.gold)),
            "counts": f"{counts.correct} correct, {counts.proposed} proposed, {counts.gold} gold",
        }
        return "\n".join(f"{name}: {text}" for name, text in lines.items())


def max_match(
    hypotheses: Sequence[str],
    gold: Sequence[AnnotatedSentence],
    max_cells: int = MAX_CELLS,
) -> list[MatchedSentence]:
    """Match each sentence with the annotator who makes F of all sentences up to it highest.

    :param hypotheses: one for each sentence, tokenised like the gold file
    :param max_cells: if the tokens of a sentence times those of its hypothesis exceed this number, all between their
        common beginning and end counts as one edit, and a line on standard error names the sentence
    :raises UserError: the number of hypotheses differs from the number of sentences, or the edits of a sentence are so
        many or so long that the search for them would not end
    """
    check_sentence_count(hypotheses, gold)
    sentences, counts = [], Counts()
    budget = StepBudget(MAX_STEPS)
    for line, sentence in zip(hypotheses, gold, strict=True):
        budget.steps = min(budget.steps + STEPS_PER_SENTENCE, MAX_STEPS)
        hypothesis = tuple(line.split())
        try:
            candidates = list(_by_annotator(sentence, hypothesis, max_cells, budget))
        except TooManySteps as error:
            sizes = f"{len(sentence.tokens)} tokens, {sum(map(len, sentence.edits.values()))} edits"
            raise UserError(
                f"{sentence.location}: too much to match with the hypothesis ({sizes}); divide the sentence"
            ) from error

        def rank(candidate: MatchedSentence, previous: Counts = counts) -> tuple[float, int, float]:
            total = previous + candidate.counts
            return total.f_score(BETA), total.correct, -(total.proposed + BETA**2 * total.gold)

        sentences.append(max(candidates, key=rank))  # the first of equals
        counts += sentences[-1].counts
    return sentences


def sum_counts(sentences: Sequence[MatchedSentence]) -> Counts:
    """Add the numbers of all sentences."""
    return sum((sentence.counts for sentence in sentences), Counts())


def m2_scores(hypotheses: Lines, settings: Settings) -> list[Score]:
    """Compute P, R and F0.5 against the corrections of ``settings.gold``; verbose also prints every sentence."""
    assert settings.gold is not None
    gold = read_m2(settings.gold)
    sentences = max_match(hypotheses, gold)
    if settings.verbose:
        for number, sentence in enumerate(sentences, start=1):
            print(f"{number}\n{sentence}\n")
    signature = f"m2|max_unchanged:{MAX_UNCHANGED}|annotators:{max_annotators(gold)}|case:mixed"
    return prf_scores(sum_counts(sentences), signature, len(gold))


def prf_scores(counts: Counts, signature: str, sentences: int) -> list[Score]:
    """Return precision, recall and F as scores in per cent."""
    details = {
        "P": f"{counts.correct} of {counts.proposed} system edits correct",
        "R": f"{counts.correct} of {counts.gold} gold edits found",
        f"F{BETA}": f"{counts.correct} correct, {counts.proposed} system and {counts.gold} gold edits",
    }
    values = counts.precision, counts.recall, counts.f_score(BETA)
    return [
        Score(name, 100 * value, f"{signature}|beta:{BETA}", detail, sentences)
        for (name, detail), value in zip(details.items(), values, strict=True)
    ]


def _by_annotator(
    sentence: AnnotatedSentence, hypothesis: tuple[str, ...], max_cells: int, budget: StepBudget
) -> Iterator[MatchedSentence]:
    source = sentence.tokens
    lattice = None
    if (len(source) + 1) * (len(hypothesis) + 1) <= max_cells:
        lattice = EditLattice(source, hypothesis, budget)
    else:
        sizes = f"{len(source)} tokens, and {len(hypothesis)} in the hypothesis"
        print_progress(f"{sentence.location}: {sizes}, are too many to align: their difference counts as one edit")
    for annotator in sorted(sentence.edits) or [0]:
        gold = sentence.edits.get(annotator, ())
        edits = lattice.edits(gold, MAX_UNCHANGED) if lattice else _single_edit(source, hypothesis, gold)
        yield MatchedSentence(sentence, hypothesis, annotator, tuple(edits))


def _single_edit(source: Tokens, hypothesis: Tokens, gold: Sequence[Edit]) -> list[SystemEdit]:
    """Return the whole difference as one edit."""
    start, stop = 0, min(len(source), len(hypothesis))
    while start < stop and source[start] == hypothesis[start]:
        start += 1
    same_end = 0
    while same_end < stop - start and source[-1 - same_end] == hypothesis[-1 - same_end]:
        same_end += 1
    end, correction = len(source) - same_end, tuple(hypothesis[start : len(hypothesis) - same_end])
    if start == end and not correction:
        return []
    correct = any((edit.start, edit.end) == (start, end) and correction in edit.corrections for edit in gold)
    return [SystemEdit(start, end, correction, correct)]
