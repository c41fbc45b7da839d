"""Error rates by hand."""

from collections.abc import Callable

import pytest

from ode_transformer.metrics.error_rates import phoneme_error_rate, word_error_rate
from ode_transformer.metrics.metric import Lines, Score, Settings


def rate(measure: Callable[[Lines, Settings], list[Score]], hypotheses: Lines, references: Lines) -> Score:
    (score,) = measure(hypotheses, Settings(references))
    return score


def test_error_rates():
    references = ["K AE T", "D AO G", "B ER D"]
    hypotheses = ["K AE T", "D AA G Z", ""]  # none, a substitution and an insertion, three deletions
    per, wer = (rate(measure, hypotheses, references) for measure in (phoneme_error_rate, word_error_rate))
    assert (per.value, per.detail) == (pytest.approx(500 / 9), "5 edits in 9 phonemes")
    assert (wer.value, wer.detail) == (pytest.approx(200 / 3), "2 of 3 words wrong")
    assert rate(phoneme_error_rate, ["A B C D"], ["X"]).value == 400
