"""Runs as a report reads them, its tables, and the sentences that it shows."""

import json
import re
from pathlib import Path

import pytest
from batches import pair_sample, perturb
from models_for_tests import small_model
from reported_runs import make_language_run

from ode_transformer.cli import main
from ode_transformer.lab.analysis.curves import systems_of
from ode_transformer.lab.analysis.depth.coefficients import stage_weights
from ode_transformer.lab.analysis.examples import SystemOutputs
from ode_transformer.lab.analysis.one_sentence import word_weights
from ode_transformer.lab.pages.runs import read_folder, read_runs
from ode_transformer.lab.pages.sentences import chosen_numbers, compared_sentences


def write_run(folder: Path, **experiment: object) -> Path:
    folder.mkdir(parents=True)
    score = {"metric": "BLEU", "value": 1.0, "signature": "", "detail": "", "sentences": 3}
    (folder / "scores.json").write_text(json.dumps({"BLEU": score}))
    if experiment:
        (folder / "experiment.json").write_text(json.dumps(experiment))
    return folder


@pytest.mark.parametrize(
    ("name", "experiment", "system", "seed"),
    [
        ("ode_transformer_rk2-seed-7", {}, "ode_transformer_rk2", 7),
        ("x", {"arch": "a", "variant": "cpu", "train_flags": ["--seed", "3", "--lr", "1"]}, "a (cpu) --lr 1", 3),
        ("x", {"arch": "a", "train_flags": [], "commands": {"train": ["fairseq-train", "--seed", "4"]}}, "a", 4),
        ("x", {"arch": "a", "train_flags": ["--seed=3", "--lr=1"]}, "a --lr=1", 3),
        ("plain", {}, "plain", None),
    ],
)
def test_seeds_of_a_system_have_one_name(tmp_path: Path, name: str, experiment: dict, system: str, seed: int | None):
    run = read_folder(write_run(tmp_path / name, **experiment))
    assert (run.name, run.seed) == (system, seed)


def test_a_study_names_its_runs_and_shows_each_once(tmp_path: Path) -> None:
    for name in "ab":
        write_run(tmp_path / "data" / f"{name}-seed-1")
    folder = tmp_path / "studies" / "toy"
    folder.mkdir(parents=True)
    entries = [{"name": name, "folder": f"../../data/{name[0]}-seed-1"} for name in ("a", "b", "a of two layers")]
    (folder / "study.json").write_text(json.dumps({"title": "Toy", "runs": entries}))
    runs, study = read_runs([("", folder)])
    assert list(systems_of(runs)) == ["a", "b"]
    assert study["title"] == "Toy"


OUTPUTS = SystemOutputs(
    ["one two three four five six", "short", "a b c d e f", "u v w x y z"],
    ["eins zwei drei vier fünf sechs", "kurz", "a b c d e f", "u v w x y z"],
    {
        "first": ["eins zwei drei vier fünf acht", "lang", "a b c d e f", "q"],
        "last": ["eins", "kurz", "a b c d e f", "u v w x y z"],
    },
)


def test_the_sentences_that_differ_most_come_first() -> None:
    assert chosen_numbers(OUTPUTS, "chrf", 3) == [2, 4, 1]
    assert chosen_numbers(OUTPUTS, "chrf", 3, longest=30) == [4, 1, 3]  # the short one is no sentence to look into
    single = SystemOutputs(OUTPUTS.source, OUTPUTS.references, {"first": OUTPUTS.systems["first"]})
    assert chosen_numbers(single, "chrf", 2) == [1, 3]
    (sentence,) = compared_sentences(OUTPUTS, [2], "chrf", {})
    first, last = (line["pieces"] for line in sentence["lines"])
    assert (first, last) == ([("missing", "kurz"), ("added", "lang")], [("equal", "kurz")])


def test_weights_by_word_of_several_steps_are_their_mean() -> None:
    model = perturb(small_model(arch="ode_transformer_rk2", ode_steps=2))
    sample = pair_sample([7], [5])
    found = word_weights(model, sample, only_varying=False)
    assert [weights.shape for weights in found.values()] == [(2, 7)] * len(found)
    for row in stage_weights(model, [sample]):
        assert found[row.block].mean(dim=1).tolist() == pytest.approx(row.mean)


def test_a_language_model_shows_the_surprisal_of_each_word(tmp_path: Path) -> None:
    page, run = tmp_path / "lm.html", make_language_run(tmp_path / "text")
    assert main(["report", str(run), "--output", str(page), "--sentences", "1", "--lines", "1,2"]) == 0
    words = re.findall(r"<ruby[^>]*>([^<]+)<rt>([\d.]+)</rt></ruby>", page.read_text())
    assert [word for word, _ in words[:4]] == ["The", "dog", "sleeps", "under"]
    assert min(float(bits) for _, bits in words) > 0
