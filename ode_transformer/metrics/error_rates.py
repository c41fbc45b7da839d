"""Error rates of grapheme-to-phoneme conversion, with phonemes separated by spaces and one word per line:

phoneme error rate = summed edit distance / summed length of the references
word error rate    = share of the words with at least one error

The edit distance is Levenshtein's: the fewest insertions, deletions and substitutions, here of phonemes.
"""

from __future__ import annotations

from rapidfuzz.distance import Levenshtein

from ode_transformer.metrics.metric import Lines, Score, Settings, paired_references
from ode_transformer.support.errors import UserError


def phoneme_error_rate(hypotheses: Lines, settings: Settings) -> list[Score]:
    """Compute the edits per reference phoneme, in per cent.

    :raises UserError: no reference has a phoneme
    """
    pairs = _split_pairs(hypotheses, settings)
    edits = sum(Levenshtein.distance(hypothesis, reference) for hypothesis, reference in pairs)
    length = sum(len(reference) for _, reference in pairs)
    return [Score("PER", 100 * edits / length, "tok:space", f"{edits} edits in {length} phonemes", len(pairs))]


def word_error_rate(hypotheses: Lines, settings: Settings) -> list[Score]:
    """Compute the share of lines (words) whose phonemes differ from the reference, in per cent.

    :raises UserError: no reference has a phoneme
    """
    pairs = _split_pairs(hypotheses, settings)
    wrong, total = sum(hypothesis != reference for hypothesis, reference in pairs), len(pairs)
    return [Score("WER", 100 * wrong / total, "tok:space", f"{wrong} of {total} words wrong", total)]


def _split_pairs(hypotheses: Lines, settings: Settings) -> list[tuple[list[str], list[str]]]:
    references = paired_references(hypotheses, settings)
    if not any(reference.split() for reference in references):
        raise UserError("nothing to score: the references are empty")
    return [(h.split(), r.split()) for h, r in zip(hypotheses, references, strict=True)]
