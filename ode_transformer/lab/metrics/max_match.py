"""MaxMatch (M2): agreement of a system's corrections with those of annotators (Dahlmeier & Ng 2012).

    P = correct / system edits,   R = correct / gold edits,   F = (1 + β²) P R / (β² P + R)

of the edits that ``edit_lattice`` defines, summed over all sentences. P and R are 1 if the divisor is 0. Of several
annotators, each sentence is scored with the one who makes F of all sentences up to it highest; among equals, the one
with most correct edits, then with the smallest (system edits + β² gold edits), then the first.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ode_transformer.lab.metrics.edit_lattice import MAX_UNCHANGED, EditLattice, SystemEdit
from ode_transformer.lab.metrics.m2_file import AnnotatedSentence, Edit, max_annotators, read_m2
from ode_transformer.lab.metrics.metric import Lines, Score, Settings, check_line_counts, check_word_pairs
from ode_transformer.support.console import track

BETA = 0.5
MAX_PAIRS = 10**6  # of words: they take a second, and half a minute where all differ


@dataclass(frozen=True)
class Counts:
    """Numbers of edits, and the scores that follow from them."""

    correct: int = 0
    proposed: int = 0
    gold: int = 0

    def __add__(self, counts: "Counts") -> "Counts":
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
    annotator: int
    edits: tuple[SystemEdit, ...]

    @property
    def gold(self) -> tuple[Edit, ...]:
        """The annotator's edits; as in the official scorer, those that end before they start are among them."""
        return (*self.source.edits.get(self.annotator, ()), *self.source.backward.get(self.annotator, ()))

    @property
    def counts(self) -> Counts:
        return Counts(sum(edit.correct for edit in self.edits), len(self.edits), len(self.gold))


def max_match(hypotheses: Sequence[str], gold: Sequence[AnnotatedSentence]) -> list[MatchedSentence]:
    """Match each sentence with the annotator who makes F of all sentences up to it highest.

    :param hypotheses: one for each sentence, tokenised like the gold file
    """
    check_line_counts(hypotheses, gold)
    sentences, total = [], Counts()
    for line, sentence in zip(track(hypotheses, "sentences scored"), gold, strict=True):
        check_word_pairs(len(line.split()), len(sentence.tokens), MAX_PAIRS, sentence.location)
        lattice = EditLattice(sentence.tokens, line.split())
        candidates = [
            MatchedSentence(sentence, annotator, tuple(lattice.edits(sentence.edits.get(annotator, ()))))
            for annotator in sorted(sentence.edits) or [0]
        ]

        def rank(candidate: MatchedSentence, previous: Counts = total) -> tuple[float, int, float]:
            counts = previous + candidate.counts
            return counts.f_score(BETA), counts.correct, -(counts.proposed + BETA**2 * counts.gold)

        sentences.append(max(candidates, key=rank))  # the first of equals
        total += sentences[-1].counts
    return sentences


def m2_scores(hypotheses: Lines, settings: Settings) -> list[Score]:
    """Compute P, R and F0.5 against the corrections of ``settings.gold``."""
    assert settings.gold is not None
    gold = read_m2(settings.gold)
    sentences = max_match(hypotheses, gold)
    signature = f"m2|max_unchanged:{MAX_UNCHANGED}|annotators:{max_annotators(gold)}|case:mixed"
    return prf_scores(sum((sentence.counts for sentence in sentences), Counts()), signature, len(gold))


def prf_scores(counts: Counts, signature: str, sentences: int) -> list[Score]:
    """Return precision, recall and F as scores in per cent."""
    correct, proposed, gold = counts.correct, counts.proposed, counts.gold
    rows = [
        ("P", counts.precision, f"{correct} of {proposed} system edits correct"),
        ("R", counts.recall, f"{correct} of {gold} gold edits found"),
        (f"F{BETA}", counts.f_score(BETA), f"{correct} correct, {proposed} system and {gold} gold edits"),
    ]
    return [Score(name, 100 * value, f"{signature}|beta:{BETA}", detail, sentences) for name, value, detail in rows]
