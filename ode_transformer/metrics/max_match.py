"""MaxMatch (M2): how well the corrections of a system agree with those of annotators (Dahlmeier & Ng 2012).

    P = correct / system edits,   R = correct / gold edits,   F = (1 + β²) P R / (β² P + R)

of the edits that ``edit_lattice`` defines, summed over all sentences. P and R are 1 where there is nothing to divide
by. Of several annotators, a sentence has the one with whom F of all sentences up to it is highest; if several are, the
one with most correct edits, then with the smallest (system edits + β² gold edits), then the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ode_transformer.metrics.edit_lattice import MAX_UNCHANGED, EditLattice, SystemEdit, Tokens
from ode_transformer.metrics.m2_file import AnnotatedSentence, Edit, most_annotators, read_m2, require_as_many
from ode_transformer.metrics.metric import Lines, Score, Settings
from ode_transformer.support.console import print_progress

BETA = 0.5
MAX_CELLS = 250_000  # tokens of the source times tokens of the hypothesis


@dataclass(frozen=True)
class Counts:
    """Numbers of edits, and what follows from them."""

    correct: int = 0
    proposed: int = 0
    gold: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.correct + other.correct, self.proposed + other.proposed, self.gold + other.gold)

    @property
    def precision(self) -> float:
        return self.correct / self.proposed if self.proposed else 1.0

    @property
    def recall(self) -> float:
        return self.correct / self.gold if self.gold else 1.0

    def f_score(self, beta: float) -> float:
        """F_β; written without P and R, which also says what it is where one of them has nothing to divide by."""
        total = self.proposed + beta**2 * self.gold
        return (1 + beta**2) * self.correct / total if total else 1.0


@dataclass(frozen=True)
class MatchedSentence:
    """A sentence, its edits and those of the annotator whom it was matched with.

    :param counts: of this sentence alone
    """

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
    beta: float = BETA,
    max_unchanged: int = MAX_UNCHANGED,
    max_cells: int = MAX_CELLS,
) -> list[MatchedSentence]:
    """Each sentence with the annotator who is best for F of all sentences up to it; see :func:`total`.

    :param hypotheses: of the same tokens as the gold file, a sentence each
    :param max_cells: a sentence whose tokens times the hypothesis's are more counts as one edit, of all between their
        common beginning and end, and a line on standard error names it
    :raises UserError: there are not as many hypotheses as sentences
    """
    require_as_many(hypotheses, gold)
    matched, so_far = [], Counts()
    for line, sentence in zip(hypotheses, gold, strict=True):
        hypothesis = tuple(line.split())
        candidates = _by_annotator(sentence, hypothesis, max_unchanged, max_cells)

        def worth(candidate: MatchedSentence, before: Counts = so_far) -> tuple[float, int, float]:
            counts = before + candidate.counts
            return counts.f_score(beta), counts.correct, -(counts.proposed + beta**2 * counts.gold)

        matched.append(max(candidates, key=worth))  # the first of several
        so_far += matched[-1].counts
    return matched


def total(matched: Sequence[MatchedSentence]) -> Counts:
    """The numbers of all sentences together."""
    return sum((sentence.counts for sentence in matched), Counts())


def m2_scores(hypotheses: Lines, settings: Settings) -> list[Score]:
    """P, R and F0.5 against the corrections of ``settings.gold``; verbose prints every sentence first."""
    assert settings.gold is not None
    gold = read_m2(settings.gold)
    matched = max_match(hypotheses, gold)
    if settings.verbose:
        for number, sentence in enumerate(matched, start=1):
            print(f"{number}\n{sentence}\n")
    signature = f"m2|max_unchanged:{MAX_UNCHANGED}|annotators:{most_annotators(gold)}|case:mixed"
    return prf_scores(total(matched), signature, len(gold))


def prf_scores(counts: Counts, signature: str, sentences: int) -> list[Score]:
    """Precision, recall and F as scores in per cent."""
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
    sentence: AnnotatedSentence, hypothesis: tuple[str, ...], max_unchanged: int, max_cells: int
) -> Iterator[MatchedSentence]:
    source = sentence.tokens
    small = (len(source) + 1) * (len(hypothesis) + 1) <= max_cells
    lattice = EditLattice(source, hypothesis) if small else None
    if lattice is None:
        sizes = f"{len(source)} tokens, and {len(hypothesis)} in the hypothesis"
        print_progress(f"{sentence.place}: {sizes}, are too many to align: their difference counts as one edit")
    for annotator in sorted(sentence.edits) or [0]:
        gold = sentence.edits.get(annotator, ())
        edits = lattice.edits(gold, max_unchanged) if lattice else _one_edit(source, hypothesis, gold)
        yield MatchedSentence(sentence, hypothesis, annotator, tuple(edits))


def _one_edit(source: Tokens, hypothesis: Tokens, gold: Sequence[Edit]) -> list[SystemEdit]:
    """The whole difference as one edit."""
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
