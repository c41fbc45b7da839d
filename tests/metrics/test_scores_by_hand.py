"""ROUGE and error rates against counts made by hand."""

import pytest

from ode_transformer.metrics.error_rates import phoneme_error_rate, word_error_rate
from ode_transformer.metrics.metric import Settings
from ode_transformer.metrics.rouge import rouge

# In per cent: twice the matches over the numbers of both sides. Words of up to three letters are not stemmed.
CASES = {
    "unigrams and bigrams, by document": (["a bb ccc", "a"], ["a bb d1", "bb"], "period", (100 / 3, 25, 100 / 3)),
    "sentences in any order": (["a b . c d ."], ["c d . a b ."], "period", (100, 200 / 3, 100)),
    "one sentence: c d, or a b": (["a b . c d ."], ["c d . a b ."], "none", (100, 200 / 3, 50)),
    # The example of Lin (2004), section 3.2: of w1 ... w5, one sentence has w1 w2, the other w1 w3 w5.
    "the union of subsequences": (
        ["w1 w2 w6 w7 w8 . w1 w3 w8 w9 w5 ."],
        ["w1 w2 w3 w4 w5 ."],
        "period",
        (200 * 4 / 15, 200 / 13, 200 * 4 / 15),
    ),
}


@pytest.mark.parametrize(("hypotheses", "references", "sentences", "expected"), CASES.values(), ids=CASES)
def test_scores_by_hand(hypotheses: list[str], references: list[str], sentences: str, expected: tuple) -> None:
    scores = rouge(hypotheses, Settings(references, sentences=sentences))
    assert [score.value for score in scores] == pytest.approx(expected)
    assert {score.sentences for score in scores} == {len(references)}


def test_error_rates() -> None:
    hypotheses = ["K AE T", "D AA G Z", ""]  # none, a substitution and an insertion, three deletions
    settings = Settings(["K AE T", "D AO G", "B ER D"])
    (per,), (wer,) = phoneme_error_rate(hypotheses, settings), word_error_rate(hypotheses, settings)
    assert (per.value, per.detail) == (pytest.approx(500 / 9), "5 edits in 9 phonemes")
    assert (wer.value, wer.detail) == (pytest.approx(200 / 3), "2 of 3 words wrong")
    assert phoneme_error_rate(["A B C D"], Settings(["X"]))[0].value == 400
