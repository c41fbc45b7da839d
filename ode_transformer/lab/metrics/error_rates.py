"""Error rates of grapheme-to-phoneme conversion, with phonemes separated by spaces and one word per line:

phoneme error rate = summed edit distance / summed length of the references
word error rate    = fraction of the words with at least one error

The edit distance is Levenshtein's: the fewest insertions, deletions and substitutions, here of phonemes.
"""

from collections.abc import Callable

import numpy as np

from ode_transformer.lab.metrics.metric import Lines, Score, SentenceStatistics, Settings, Sums, paired_references


def phoneme_error_rate(hypotheses: Lines, settings: Settings) -> list[Score]:
    """Compute the edits per reference phoneme, in per cent."""
    return [phoneme_statistics(hypotheses, settings).total()]


def word_error_rate(hypotheses: Lines, settings: Settings) -> list[Score]:
    """Compute the fraction of lines (words) whose phonemes differ from the reference, in per cent."""
    return [word_statistics(hypotheses, settings).total()]


def phoneme_statistics(hypotheses: Lines, settings: Settings) -> SentenceStatistics:
    """Count the edits and the reference's phonemes of each word."""
    from rapidfuzz.distance import Levenshtein  # of the extra experiments

    def count_errors(output: list[str], right: list[str]) -> tuple[int, int]:
        return Levenshtein.distance(output, right), len(right)

    return _statistics(hypotheses, settings, count_errors, "PER", "{:.0f} edits in {:.0f} phonemes")


def word_statistics(hypotheses: Lines, settings: Settings) -> SentenceStatistics:
    """Mark each word as wrong (1) or right (0), beside a 1 for the word itself."""

    def count_errors(output: list[str], right: list[str]) -> tuple[int, int]:
        return output != right, 1

    return _statistics(hypotheses, settings, count_errors, "WER", "{:.0f} of {:.0f} words wrong")


def _statistics(
    hypotheses: Lines,
    settings: Settings,
    count_errors: Callable[[list[str], list[str]], tuple[int, int]],
    name: str,
    detail: str,
) -> SentenceStatistics:
    """Return the statistics of a rate; words without a phoneme have the rate 0.

    :param detail: format of the two sums
    """
    pairs = zip(hypotheses, paired_references(hypotheses, settings), strict=True)
    errors = np.array([count_errors(output.split(), right.split()) for output, right in pairs], dtype=float)

    def score(sums: Sums) -> Score:
        rate = float(100 * sums[0] / sums[1]) if sums[1] else 0.0
        return Score(name, rate, "tok:space", detail.format(*sums), len(hypotheses))

    return SentenceStatistics(errors, score)
