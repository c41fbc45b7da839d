"""The paired bootstrap test: by its definition, and from the command."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import numpy as np
import pytest

from ode_transformer.cli.command import main
from ode_transformer.metrics.metric import Score, Settings
from ode_transformer.metrics.registry import METRICS

COMPARED = {name: metric.compare for name, metric in METRICS.items() if metric.compare}
CHANCE = random.Random(1)
WORDS = ["the", "a", "dog", "cat", "house", "tree", "sees", "finds", "likes", "near", "under", "big", "small", "old"]
REFERENCES = [" ".join(CHANCE.choices(WORDS, k=CHANCE.randint(6, 14))) for _ in range(120)]


def damaged(share: float, seed: int) -> list[str]:
    """The references with a share of their words replaced."""
    chance = random.Random(seed)
    return [" ".join(w if chance.random() > share else chance.choice(WORDS) for w in r.split()) for r in REFERENCES]


GOOD, ALIKE, BAD = damaged(0.2, 1), damaged(0.2, 2), damaged(0.5, 3)


SETTINGS = Settings(REFERENCES)


def bleu(hypotheses: list[str], references: list[str]) -> Score:
    (score,) = METRICS["bleu"](hypotheses, Settings(references))
    return score


@pytest.mark.parametrize("metric", COMPARED)
def test_a_clearly_worse_system_is_significant_and_an_equal_one_is_not(metric: str) -> None:
    systems = (GOOD, GOOD, ALIKE, BAD)
    good, same, alike, bad = COMPARED[metric](systems, SETTINGS, 300, 12345)
    assert good.p_value is None
    assert same.p_value == 1
    assert 0.05 < alike.p_value < 1
    assert bad.p_value < 0.01
    for system, found in zip(systems, (good, same, alike, bad), strict=True):
        (score,) = METRICS[metric](system, SETTINGS)
        assert abs(found.mean - score.value) < found.interval


def test_mean_interval_and_p_are_those_of_the_definition() -> None:
    """With draws of our own, against sacrebleu's: equal up to chance."""
    _, found = COMPARED["bleu"]((GOOD, ALIKE), SETTINGS, 300, 12345)
    chance = np.random.default_rng(5)
    scores, differences = [], []
    for _ in range(150):
        draw = chance.integers(len(REFERENCES), size=len(REFERENCES))
        references = [REFERENCES[i] for i in draw]
        baseline, system = (bleu([side[i] for i in draw], references).value for side in (GOOD, ALIKE))
        scores.append(system)
        differences.append(abs(system - baseline))
    observed = abs(bleu(GOOD, REFERENCES).value - bleu(ALIKE, REFERENCES).value)
    p = np.mean(np.array(differences) - np.mean(differences) > observed)
    assert found.mean == pytest.approx(np.mean(scores), abs=0.5)
    low, high = np.quantile(scores, [0.025, 0.975])
    assert found.interval == pytest.approx((high - low) / 2, rel=0.2)
    assert found.p_value == pytest.approx(p, abs=0.08)


def test_the_seed_reproduces_and_leaves_the_environment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for before in ("77", None):
        if before is None:
            monkeypatch.delenv("SACREBLEU_SEED", raising=False)
        else:
            monkeypatch.setenv("SACREBLEU_SEED", before)
        first, again, other = (COMPARED["chrf"]((GOOD, ALIKE), SETTINGS, 50, seed) for seed in (3, 3, 4))
        assert first == again
        assert first[1].mean != other[1].mean
        assert os.environ.get("SACREBLEU_SEED") == before


# --- the command -------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    texts = {"references": REFERENCES, "good": GOOD, "alike": ALIKE, "bad": BAD, "short": GOOD[:-1]}
    for name, lines in texts.items():
        (tmp_path / name).write_text("".join(line + "\n" for line in lines))
    for name in ("good", "bad"):
        rows = zip(REFERENCES, texts[name], strict=True)
        log = "".join(f"T-{n}\t{reference}\nD-{n}\t-1\t{line}\n" for n, (reference, line) in enumerate(rows))
        (tmp_path / f"{name}.log").write_text(log)
        (tmp_path / f"{name}.other").write_text(log.replace("dog", "hound"))
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
    assert lines[1].endswith(f"p = 0.0099 against {files['good']}")
    assert ": chrF2 " in lines[2]


def test_json_adds_to_what_one_system_has(files, capsys: pytest.CaptureFixture[str]) -> None:
    assert score(files, "good", "alike", "bad", more=("--json", "--seed", "5")) == 0
    good, alike, bad = map(json.loads, capsys.readouterr().out.splitlines())
    assert (
        main(["score", "--metric", "bleu", "--json", "--hypotheses", files["bad"], "--references", files["references"]])
        == 0
    )
    alone = json.loads(capsys.readouterr().out)
    assert {key: bad[key] for key in alone} == alone
    assert set(bad) - set(alone) == {"system", "bootstrap"}
    assert bad["system"] == files["bad"]
    assert (bad["bootstrap"]["samples"], bad["bootstrap"]["seed"]) == (100, 5)
    assert good["bootstrap"]["p_value"] is None
    assert bad["bootstrap"]["p_value"] < alike["bootstrap"]["p_value"]


def test_logs_are_compared_like_files(files, capsys: pytest.CaptureFixture[str]) -> None:
    assert score(files, "good", "bad", more=("--json",)) == 0
    expected = [json.loads(line)["bootstrap"] for line in capsys.readouterr().out.splitlines()]
    words = ["--generate-log", files["good.log"], files["bad.log"], "--bootstrap-samples", "100", "--json"]
    assert main(["score", "--metric", "bleu", *words]) == 0
    assert [json.loads(line)["bootstrap"] for line in capsys.readouterr().out.splitlines()] == expected


REFUSED = {
    "different line counts": (
        ("--hypotheses", "good", "short", "--references", "references"),
        "short: 119 hypotheses, but 120 references",
    ),
    "other references": (
        ("--generate-log", "good.log", "bad.other"),
        "bad.other: its references (T-) are not those of ",
    ),
    "no references": (("--hypotheses", "good", "bad"), "--metric bleu needs --references"),
    "one system": (("--generate-log", "good.log", "--seed", "3"), "--seed is for comparing systems: name several"),
    "many samples": (
        ("--hypotheses", "good", "bad", "--references", "references", "--bootstrap-samples", str(10**9)),
        "--bootstrap-samples 1000000000: at most 559240 fit into memory for 120 lines",
    ),
    "one system, samples": (("--generate-log", "good.log", "--bootstrap-samples", "3"), "--bootstrap-samples is for"),
}


@pytest.mark.parametrize(("words", "message"), REFUSED.values(), ids=REFUSED)
def test_refusals(files, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str) -> None:
    assert main(["score", "--metric", "bleu", *(files.get(word, word) for word in words)]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("metric", ["per", "wer", "bleu wer"])
def test_error_rates_are_not_compared(files, metric: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert score(files, "good", "bad", metric=metric) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert f"--metric {metric.split()[-1]}: systems are compared by bleu and chrf; score one at a time" in error


def test_a_seed_of_zero_would_reproduce_nothing(files, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        score(files, "good", "bad", more=("--seed", "0"))
    assert "argument --seed: 0 is not a whole number from 1 on" in capsys.readouterr().err
