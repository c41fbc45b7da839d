"""Error rates against their definitions."""

from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ode_transformer.metrics.error_rates import edit_distance, phoneme_error_rate, word_error_rate
from ode_transformer.metrics.metric import Lines, Score, Settings
from ode_transformer.support.errors import UserError

words = st.text("abc", max_size=7)
lines = st.lists(st.sampled_from(["AH", "B", "K", "T"]), max_size=6).map(" ".join)


def rate(measure: Callable[[Lines, Settings], list[Score]], hypotheses: Lines, references: Lines) -> Score:
    (score,) = measure(hypotheses, Settings(references))
    return score


def naive_distance(left: str, right: str) -> int:
    """The definition, word by word."""

    @cache
    def distance(i: int, j: int) -> int:
        if i == 0 or j == 0:
            return i + j
        if left[i - 1] == right[j - 1]:
            return distance(i - 1, j - 1)
        return 1 + min(distance(i - 1, j), distance(i, j - 1), distance(i - 1, j - 1))

    return distance(len(left), len(right))


@settings(deadline=None)
@given(words, words)
def test_distance_is_the_definition(left: str, right: str):
    assert edit_distance(left, right) == naive_distance(left, right)


@settings(deadline=None)
@given(words, words)
def test_distance_is_symmetric_and_bounded(left: str, right: str):
    distance = edit_distance(left, right)
    assert distance == edit_distance(right, left)
    assert abs(len(left) - len(right)) <= distance <= max(len(left), len(right))


@settings(deadline=None)
@given(words, words)
def test_distance_is_zero_for_the_same_only(left: str, right: str):
    assert edit_distance(left, left) == 0
    assert (edit_distance(left, right) == 0) == (left == right)


@settings(deadline=None)
@given(words, words, words)
def test_distance_obeys_the_triangle_inequality(a: str, b: str, c: str):
    assert edit_distance(a, c) <= edit_distance(a, b) + edit_distance(b, c)


@settings(deadline=None)
@given(st.lists(lines, min_size=1).filter(any))
def test_identical_output_has_no_errors(references: list[str]):
    assert rate(phoneme_error_rate, references, references).value == 0
    assert rate(word_error_rate, references, references).value == 0


def test_error_rates():
    references = ["K AE T", "D AO G", "B ER D"]
    hypotheses = ["K AE T", "D AA G Z", ""]  # none, a substitution and an insertion, three deletions
    per, wer = (rate(measure, hypotheses, references) for measure in (phoneme_error_rate, word_error_rate))
    assert (per.value, per.detail) == (pytest.approx(500 / 9), "5 edits in 9 phonemes")
    assert (wer.value, wer.detail) == (pytest.approx(200 / 3), "2 of 3 words wrong")


def test_a_longer_output_can_exceed_one_hundred_per_cent():
    assert rate(phoneme_error_rate, ["A B C D"], ["X"]).value == 400


def test_empty_references_have_no_phoneme_error_rate():
    with pytest.raises(UserError, match="the references are empty"):
        rate(phoneme_error_rate, ["A"], [""])
