"""The paired bootstrap test: by its definition, and from the command."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from ode_transformer.cli.command import main
from ode_transformer.lab.metrics import translation_scores
from ode_transformer.lab.metrics.metric import Score, SentenceStatistics, Settings
from ode_transformer.lab.metrics.registry import METRICS
from ode_transformer.lab.metrics.significance import (
    BootstrapResult,
    compare_systems,
    paired_bootstrap,
)

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
    statistics = [[METRICS[metric].sentence_statistics(lines, SETTINGS)] for lines in systems]
    return paired_bootstrap(statistics, samples, seed)


@pytest.mark.parametrize("metric", COMPARED)
def test_the_sums_of_all_sentences_give_the_score(metric: str) -> None:
    statistics = METRICS[metric].sentence_statistics(BAD, SETTINGS)
    (score,) = METRICS[metric](BAD, SETTINGS)
    assert statistics.total() == score


def test_mean_intervals_and_p_are_those_of_the_definition() -> None:
    """With draws of our own, of lines that are scored anew: equal up to chance."""
    _, found = bootstrap("wer", GOOD, ALIKE, samples=2000)
    assert found.difference is not None
    chance = np.random.default_rng(5)
    scores, differences = [], []
    for draw in [range(len(REFERENCES)), *chance.integers(len(REFERENCES), size=(1000, len(REFERENCES)))]:
        settings = Settings([REFERENCES[i] for i in draw])
        baseline, system = (METRICS["wer"]([side[i] for i in draw], settings)[0].value for side in (GOOD, ALIKE))
        scores.append(system)
        differences.append(system - baseline)
    scores, (observed, *differences) = scores[1:], differences
    p = np.mean(np.abs(np.array(differences) - np.mean(differences)) >= abs(observed))
    assert found.mean == pytest.approx(np.mean(scores), abs=0.5)
    low, high = np.quantile(scores, [0.025, 0.975])
    assert found.interval == pytest.approx((high - low) / 2, rel=0.2)
    assert found.difference.value == pytest.approx(observed)
    assert found.difference.interval == pytest.approx(np.quantile(differences, [0.025, 0.975]), abs=0.6)
    assert found.difference.p_value == pytest.approx(p, abs=0.08)


def statistics(wrong: NDArray[np.float64]) -> SentenceStatistics:
    """Those of a word error rate, from a 1 for each wrong word."""
    counts = np.stack([wrong, np.ones_like(wrong)], axis=-1)
    return SentenceStatistics(counts, lambda sums: Score("WER", float(100 * sums[0] / sums[1]), "", "", None))


def test_the_test_over_sentences_contains_no_chance_of_seeds() -> None:
    """Runs that differ on all sentences alike leave the interval of their mean as narrow as that of one."""
    errors = np.random.default_rng(7).random(200) < 0.3
    runs = [statistics(errors + shift) for shift in (-0.1, 0.1)]
    one, two, shifted = paired_bootstrap([[statistics(errors.astype(float))], runs, [statistics(errors + 0.05)]], 100)
    assert two.interval == pytest.approx(one.interval)
    assert str(shifted.difference) == "+5.00 [+5.00, +5.00], p = 0.0099"


def test_systems_are_compared_with_one_of_them_over_seeds() -> None:
    """Against Student's test, and Dunnett's (1955) table: 2.86 for two systems and six degrees of freedom."""
    rates = {"plain": [10.0, 11.0, 12.0], "worse": [14.0, 15.0, 16.0], "alike": [10.9, 11.0, 11.1], "once": [9.0]}
    compared = compare_systems(rates, "plain", "PER")
    half = 2.86 * (2 / 3 * (1 + 1 + 0.01) / 3) ** 0.5
    assert compared["worse"].interval == pytest.approx((4 - half, 4 + half), abs=0.01)
    assert str(compared["once"]) == "-2.00"  # one seed: no test
    assert [compared[name].verdict for name in ("worse", "alike", "once")] == ["different", "undecided", ""]
    pair = compare_systems({name: rates[name] for name in ("plain", "worse")}, "plain", "PER")["worse"]
    assert pair.p_value == pytest.approx(scipy.stats.ttest_ind(rates["plain"], rates["worse"]).pvalue, abs=1e-3)
    assert compare_systems({"plain": [1.0, 1.0], "other": [2.0, 2.0]}, "plain", "PER")["other"].p_value is None


def test_systems_are_equivalent_within_the_margin_of_their_score() -> None:
    """A twentieth of an error; and perplexities, whose margin is 2%, by their ratio."""
    scores = {"plain": [10.0, 10.1, 10.2], "alike": [10.05, 10.15, 10.25]}
    assert str(compare_systems(scores, "plain", "PER")["alike"]).endswith(": equivalent")
    assert compare_systems(scores, "plain", "gradient norm")["alike"].verdict == "undecided"
    ratio = compare_systems({"plain": [100.0, 100.1], "more": [101.0, 101.1]}, "plain", "Perplexity test")["more"]
    assert str(ratio).startswith("+1.00% [")
    assert ratio.verdict == "different"
    assert compare_systems(scores, "plain", "perplexity valid")["alike"].verdict == "undecided"


def test_runs_of_a_system_are_compared_over_sentences_and_over_seeds(tmp_path: Path, capsys) -> None:
    files = {name: str(tmp_path / name) for name in ("references", "good", "alike", "bad")}
    for path, lines in zip(files.values(), (REFERENCES, GOOD, ALIKE, BAD), strict=True):
        Path(path).write_text("".join(line + "\n" for line in lines))
    systems = ["--hypotheses", *(files[name] for name in ("good", "alike", "bad", "bad")), "--runs", "2"]
    words = ["score", "--metric", "bleu", *systems, "--references", files["references"], "--bootstrap-samples", "100"]
    assert main(words) == 0
    good, alike, first, bad, again, second = capsys.readouterr().out.splitlines()
    assert good == f"{files['good']}: {bleu(GOOD, REFERENCES)}"
    assert alike == f"{files['alike']}: {bleu(ALIKE, REFERENCES)}"
    assert bad == again
    statistics = [METRICS["bleu"].sentence_statistics(lines, SETTINGS) for lines in (GOOD, ALIKE, BAD, BAD)]
    expected = paired_bootstrap([statistics[:2], statistics[2:]], 100)
    scores = [bleu(lines, REFERENCES).value for lines in (GOOD, ALIKE)]
    assert first.startswith(f"{files['good']} and 1 more: BLEU {np.mean(scores):.2f} ± {np.std(scores, ddof=1):.2f}; ")
    assert first.endswith(f": {expected[0]}")
    both = [bleu(BAD, REFERENCES).value] * 2
    seeds = compare_systems({"good": scores, "bad": both}, "good", "BLEU")["bad"]
    assert second.endswith(f": {expected[1]}; over seeds {seeds} against {files['good']} and 1 more")
    assert main([*words, "--json"]) == 0
    of_good, of_bad = map(json.loads, capsys.readouterr().out.splitlines())
    assert [run["value"] for run in of_good["runs"]] == scores
    assert of_bad["bootstrap"]["difference"]["value"] == pytest.approx(expected[1].difference.value)
    assert of_bad["seeds"]["p_value"] == pytest.approx(seeds.p_value)


@pytest.mark.parametrize(("metric", "theirs"), [("bleu", BLEU), ("chrf", CHRF)])
def test_sentences_are_counted_in_chunks_and_once(metric, theirs, tmp_path: Path, monkeypatch, capsys) -> None:
    """The n-grams of a chunk alone are in memory, and the sums are those of sacrebleu's own loop over the corpus."""
    expected = [theirs().corpus_score(lines, [REFERENCES]).score for lines in (GOOD, BAD)]
    monkeypatch.setattr(translation_scores, "CHUNK_SIZE", 50)
    counted: list[int] = []
    count = theirs._extract_corpus_statistics

    def record(self: BLEU | CHRF, hypotheses: list[str], references: list[list[str]]) -> list:
        counted.append(len(hypotheses))
        return count(self, hypotheses, references)

    monkeypatch.setattr(theirs, "_extract_corpus_statistics", record)
    files = [tmp_path / name for name in ("references", "good", "bad")]
    for path, lines in zip(files, (REFERENCES, GOOD, BAD), strict=True):
        path.write_text("".join(line + "\n" for line in lines))
    words = ["--hypotheses", *files[1:], "--references", files[0], "--bootstrap-samples", 10, "--json"]
    assert main(["score", "--metric", metric, *map(str, words)]) == 0
    assert [json.loads(line)["value"] for line in capsys.readouterr().out.splitlines()] == expected
    assert counted == [50, 50, 20] * 2
