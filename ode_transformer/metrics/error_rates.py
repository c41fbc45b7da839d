"""Error rates of spelling to phonemes, with tokens separated by spaces and one word per line:

phoneme error rate = summed edit distance / summed length of the references
word error rate    = share of the words with at least one error
"""

from collections.abc import Hashable, Sequence

from ode_transformer.metrics.metric import Lines, Score, Settings, paired_references
from ode_transformer.support.errors import UserError


def edit_distance(left: Sequence[Hashable], right: Sequence[Hashable]) -> int:
    """The fewest insertions, deletions and substitutions that turn ``left`` into ``right`` (Levenshtein)."""
    above = list(range(len(right) + 1))  # above[j]: distance of left[:i] and right[:j]
    for i, x in enumerate(left, start=1):
        row = [i]
        for j, y in enumerate(right, start=1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (x != y)))
        above = row
    return above[-1]


def phoneme_error_rate(hypotheses: Lines, settings: Settings) -> list[Score]:
    """Edits per reference phoneme, in per cent."""
    references = paired_references(hypotheses, settings)
    pairs = [(h.split(), r.split()) for h, r in zip(hypotheses, references, strict=True)]
    edits = sum(edit_distance(hypothesis, reference) for hypothesis, reference in pairs)
    length = sum(len(reference) for _, reference in pairs)
    if not length:
        raise UserError("the references are empty")
    return [Score("PER", 100 * edits / length, "tok:space", f"{edits} edits in {length} phonemes", len(pairs))]


def word_error_rate(hypotheses: Lines, settings: Settings) -> list[Score]:
    """The share of lines (words) whose phonemes are not exactly the reference's, in per cent."""
    references = paired_references(hypotheses, settings)
    wrong = sum(h.split() != r.split() for h, r in zip(hypotheses, references, strict=True))
    total = len(references)
    return [Score("WER", 100 * wrong / total, "tok:space", f"{wrong} of {total} words wrong", total)]
