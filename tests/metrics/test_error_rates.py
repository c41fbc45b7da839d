"""Error rates against their definitions."""

from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ode_transformer.metrics.error_rates import phoneme_error_rate, word_error_rate
from ode_transformer.metrics.metric import Lines, Score, Settings

lines = st.lists(st.sampled_from(["AH", "B", "K", "T"]), max_size=6).map(" ".join)


def rate(measure: Callable[[Lines, Settings], list[Score]], hypotheses: Lines, references: Lines) -> Score:
    (score,) = measure(hypotheses, Settings(references))
    return score


def naive_distance(left: list[str], right: list[str]) -> int:
    """Levenshtein's distance by its definition."""

    @cache
    def distance(i: int, j: int) -> int:
        if i == 0 or j == 0:
            return i + j
        if left[i - 1] == right[j - 1]:
            return distance(i - 1, j - 1)
        return 1 + min(distance(i - 1, j), distance(i, j - 1), distance(i - 1, j - 1))

    return distance(len(left), len(right))


@settings(deadline=None)
@given(lines, lines.filter(bool))
def test_the_phoneme_error_rate_is_the_edit_distance_of_the_definition(hypothesis: str, reference: str):
    expected = naive_distance(hypothesis.split(), reference.split()), len(reference.split())
    assert rate(phoneme_error_rate, [hypothesis], [reference]).detail == "{} edits in {} phonemes".format(*expected)


def test_error_rates():
    references = ["K AE T", "D AO G", "B ER D"]
    hypotheses = ["K AE T", "D AA G Z", ""]  # none, a substitution and an insertion, three deletions
    per, wer = (rate(measure, hypotheses, references) for measure in (phoneme_error_rate, word_error_rate))
    assert (per.value, per.detail) == (pytest.approx(500 / 9), "5 edits in 9 phonemes")
    assert (wer.value, wer.detail) == (pytest.approx(200 / 3), "2 of 3 words wrong")
    assert rate(phoneme_error_rate, ["A B C D"], ["X"]).value == 400
