"""ROUGE against counts made by hand."""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ode_transformer.metrics.metric import Settings
from ode_transformer.metrics.rouge import rouge


def f1(hits: float, hypothesis: float, reference: float) -> float:
    """In per cent, from the numbers of matches and of all on either side."""
    return 200 * hits / (hypothesis + reference) if hypothesis and reference else 0


def values(hypotheses: list[str], references: list[str], sentences: str = "period") -> list[float]:
    return [score.value for score in rouge(hypotheses, Settings(references, sentences=sentences))]


def ngrams(words: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(words[start:] for start in range(n)), strict=False))


def naive_rouge_n(hypothesis: str, reference: str, n: int) -> float:
    """For words that need no stemming."""
    left, right = (ngrams(text.replace(".", " ").split(), n) for text in (hypothesis, reference))
    return f1((left & right).total(), left.total(), right.total())


# Words of up to three letters are not stemmed.
documents = st.lists(st.sampled_from(["a", "bb", "ccc", "d1", "."]), max_size=9).map(" ".join)


@settings(deadline=None)
@given(st.lists(st.tuples(documents, documents), min_size=1, max_size=3))
def test_unigrams_and_bigrams_are_counted_by_the_definition(pairs: list[tuple[str, str]]) -> None:
    hypotheses, references = map(list, zip(*pairs, strict=True))
    one, two, _ = values(hypotheses, references)
    for n, found in ((1, one), (2, two)):
        assert found == pytest.approx(sum(naive_rouge_n(*pair, n) for pair in pairs) / len(pairs))


def naive_lcs(left: Sequence[str], right: Sequence[str]) -> int:
    """By trying all subsequences, the longest first."""

    def subsequences(words: Sequence[str], length: int) -> set[tuple[str, ...]]:
        return set(combinations(words, length))

    lengths = range(min(len(left), len(right)), 0, -1)
    return next((n for n in lengths if subsequences(left, n) & subsequences(right, n)), 0)


@settings(deadline=None)
@given(documents, documents)
def test_documents_of_one_sentence_share_their_longest_subsequence(hypothesis: str, reference: str) -> None:
    left, right = (text.replace(".", " ").split() for text in (hypothesis, reference))
    *_, long = values([hypothesis], [reference], "none")
    assert long == pytest.approx(f1(naive_lcs(left, right), len(left), len(right)))


def test_sentences_are_matched_in_any_order() -> None:
    hypothesis, reference = "a b . c d .", "c d . a b ."
    assert values([hypothesis], [reference])[2] == pytest.approx(100)
    assert values([hypothesis], [reference], "none")[2] == pytest.approx(50)  # c d, or a b


def test_the_union_of_subsequences_by_hand() -> None:
    """The example of Lin (2004), section 3.2: of w1 ... w5, one sentence has w1 w2, the other w1 w3 w5."""
    *_, long = values(["w1 w2 w6 w7 w8 . w1 w3 w8 w9 w5 ."], ["w1 w2 w3 w4 w5 ."])
    assert long == pytest.approx(f1(4, 10, 5))
