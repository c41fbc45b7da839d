"""The paired bootstrap test: by its definition, and from the command."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from numpy.typing import NDArray

from ode_transformer.cli.command import main
from ode_transformer.metrics.metric import Score, Settings
from ode_transformer.metrics.registry import METRICS
from ode_transformer.metrics.significance import BootstrapResult, SentenceStatistics, difference, paired_bootstrap

COMPARED = [name for name, metric in METRICS.items() if metric.statistics]
CHANCE = random.Random(1)
WORDS = ["the", "a", "dog", "cat", "house", "tree", "sees", "finds", "likes", "near", "under", "big", "small", "old"]
REFERENCES = [" ".join(CHANCE.choices(WORDS, k=CHANCE.randint(6, 14))) for _ in range(120)]


def damaged(fraction: float, seed: int) -> list[str]:
    """The references with a fraction of their words replaced."""
    chance = random.Random(seed)
    return [" ".join(w if chance.random() > fraction else chance.choice(WORDS) for w in r.split()) for r in REFERENCES]


GOOD, ALIKE, BAD = damaged(0.2, 1), damaged(0.2, 2), damaged(0.5, 3)


SETTINGS = Settings(REFERENCES)


def bleu(hypotheses: list[str], references: list[str]) -> Score:
    (score,) = METRICS["bleu"](hypotheses, Settings(references))
    return score


def bootstrap(metric: str, *systems: list[str], samples: int = 300, seed: int = 12345) -> list[BootstrapResult]:
    """The test of one training of each system."""
    return paired_bootstrap(
        [[METRICS[metric].sentence_statistics(lines, SETTINGS)] for lines in systems], samples, seed
    )


@pytest.mark.parametrize("metric", COMPARED)
def test_the_sums_of_all_sentences_give_the_score(metric: str) -> None:
    statistics = METRICS[metric].sentence_statistics(BAD, SETTINGS)
    (score,) = METRICS[metric](BAD, SETTINGS)
    assert statistics.score(statistics.numbers.sum(axis=0)) == pytest.approx(score.value)


def test_mean_intervals_and_p_are_those_of_the_definition() -> None:
    """With draws of our own, of lines that are scored anew: equal up to chance."""
    _, found = bootstrap("bleu", GOOD, ALIKE)
    assert found.difference is not None
    chance = np.random.default_rng(5)
    scores, differences = [], []
    for _ in range(150):
        draw = chance.integers(len(REFERENCES), size=len(REFERENCES))
        references = [REFERENCES[i] for i in draw]
        baseline, system = (bleu([side[i] for i in draw], references).value for side in (GOOD, ALIKE))
        scores.append(system)
        differences.append(system - baseline)
    observed = bleu(ALIKE, REFERENCES).value - bleu(GOOD, REFERENCES).value
    p = np.mean(np.abs(np.array(differences) - np.mean(differences)) >= abs(observed))
    assert found.mean == pytest.approx(np.mean(scores), abs=0.5)
    low, high = np.quantile(scores, [0.025, 0.975])
    assert found.interval == pytest.approx((high - low) / 2, rel=0.2)
    assert found.difference.value == pytest.approx(observed)
    assert found.difference.interval == pytest.approx(np.quantile(differences, [0.025, 0.975]), abs=0.6)
    assert found.difference.p_value == pytest.approx(p, abs=0.08)


def statistics(wrong: NDArray[np.float64]) -> SentenceStatistics:
    """Those of a word error rate, from a 1 for each wrong word."""
    return SentenceStatistics(
        np.stack([wrong, np.ones_like(wrong)], axis=-1), lambda sums: float(100 * sums[0] / sums[1])
    )


def test_without_differences_between_sentences_it_is_welch_over_seeds() -> None:
    rates = [0.11, 0.14, 0.12], [0.16, 0.15, 0.2]
    result = paired_bootstrap([[statistics(np.full(50, rate)) for rate in system] for system in rates], 2000)[1]
    shift, interval = difference(*([100 * rate for rate in system] for system in reversed(rates)))
    assert result.difference is not None
    assert result.difference.value == pytest.approx(shift)
    assert result.difference.interval == pytest.approx(interval, abs=0.15)  # of about ±5
    test = scipy.stats.ttest_ind(*rates, equal_var=False)
    assert result.difference.p_value == pytest.approx(test.pvalue, rel=0.1)
    one_seed = [[statistics(np.full(50, rate)) for rate in system[:1]] for system in rates]
    assert paired_bootstrap(one_seed, 100)[1].difference.p_value == pytest.approx(1 / 101)


def test_the_draws_of_one_seed_are_those_of_published_values() -> None:
    generator = np.random.default_rng(7)
    pair = [[statistics((generator.random(200) < rate).astype(float))] for rate in (0.3, 0.35)]
    assert str(paired_bootstrap(pair, 100)[1]) == "35.58 ± 5.75, difference +7.50 [-2.05, +15.86], p = 0.099"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    texts = {"references": REFERENCES, "good": GOOD, "alike": ALIKE, "bad": BAD}
    for name, lines in texts.items():
        (tmp_path / name).write_text("".join(line + "\n" for line in lines))
    return {path.name: str(path) for path in tmp_path.iterdir()}


def score(files: dict[str, str], *systems: str, metric: str = "bleu", more: tuple[str, ...] = ()) -> int:
    words = ["--hypotheses", *(files[name] for name in systems), "--references", files["references"]]
    return main(["score", "--metric", *metric.split(), *words, "--bootstrap-samples", "100", *more])


def test_each_system_has_a_line_with_its_score_and_the_test(files, capsys: pytest.CaptureFixture[str]) -> None:
    assert score(files, "good", "bad", metric="bleu chrf") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0].rstrip(":") for line in lines] == [files["good"], files["bad"]] * 2
    assert lines[0].startswith(f"{files['good']}: {bleu(GOOD, REFERENCES)}; 100 draws, seed 12345: ")
    assert " p = " not in lines[0]
    assert lines[1].endswith(f"p = 0.010 against {files['good']}")
    assert ": chrF2 " in lines[2]


def test_runs_of_a_system_are_compared_over_sentences_and_seeds(files, capsys: pytest.CaptureFixture[str]) -> None:
    assert score(files, "good", "alike", "bad", "bad", more=("--runs", "2")) == 0
    good, alike, first, bad, again, second = capsys.readouterr().out.splitlines()
    assert [good, alike] == [
        f"{files[name]}: {bleu(*text)}" for name, *text in (("good", GOOD, REFERENCES), ("alike", ALIKE, REFERENCES))
    ]
    assert bad == again
    statistics = [METRICS["bleu"].sentence_statistics(lines, SETTINGS) for lines in (GOOD, ALIKE, BAD, BAD)]
    expected = paired_bootstrap([statistics[:2], statistics[2:]], 100)
    scores = [bleu(lines, REFERENCES).value for lines in (GOOD, ALIKE)]
    assert first.startswith(f"{files['good']} and 1 more: BLEU {np.mean(scores):.2f} ± {np.std(scores, ddof=1):.2f}; ")
    assert first.endswith(f": {expected[0]}")
    assert second.endswith(f": {expected[1]} against {files['good']} and 1 more")
    assert score(files, "good", "alike", "bad", "bad", more=("--runs", "2", "--json")) == 0
    of_good, of_bad = map(json.loads, capsys.readouterr().out.splitlines())
    assert [run["value"] for run in of_good["runs"]] == scores
    assert of_bad["bootstrap"]["difference"]["value"] == pytest.approx(expected[1].difference.value)
