"""The synthetic corpus is like a language, its steps run, and costs are extrapolated from two sizes."""

import pytest
from corpus_cost import LEARNING, START, Cost, costs, extrapolated, hours, sentences


def test_the_number_of_different_words_grows_with_the_text() -> None:
    counts = []
    for lines in (200, 2000):
        texts = [list(sentences(lines, language)) for language in ("en", "fr")]
        assert texts == [list(sentences(lines, language)) for language in ("en", "fr")]
        assert [len(line.split()) for line in texts[0]] == [len(line.split()) for line in texts[1]]
        words = " ".join(texts[0]).lower().replace(".", "").split()
        assert 20 * lines < len(words) < 30 * lines
        counts.append(len(set(words)))
    assert 3 < counts[1] / counts[0] < 6  # 10 ^ 0.69 = 4.9 by the law, in the long run


def test_costs_are_extrapolated_from_two_sizes() -> None:
    found = [Cost(10, 1), Cost(40, 10)]
    cost = extrapolated("binarise", [100, 1000], found, 100_000)
    assert (cost.seconds, cost.memory) == pytest.approx((40 + 30 * 110, 10 + 9 * 110))
    assert extrapolated("binarise", [1000], found[1:], 2000) == Cost(80, 20)
    assert extrapolated(LEARNING, [100, 1000], found, 100_000).seconds == pytest.approx(40 * 100 ** (1 / 1.45))
    assert [hours(step, Cost(3600, 1), 32) for step in (LEARNING, START, "binarise")] == [1, 1, 0.1]


@pytest.mark.slow
def test_each_step_is_measured() -> None:
    found = costs(300, 50)
    assert len(found) == 5
    assert all(cost.seconds > 0 for cost in found.values())
