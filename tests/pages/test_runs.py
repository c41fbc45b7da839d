"""Folders of runs as a report reads them."""

import json
from pathlib import Path

import pytest

from ode_transformer.cli import main
from ode_transformer.metrics.metric import Score
from ode_transformer.pages.runs import read_folder, read_runs, systems_of, train_command
from ode_transformer.support.errors import UserError


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


def test_the_command_of_a_run_is_the_one_that_trained_it(tmp_path: Path) -> None:
    planned = {"train": ["fairseq-train", "data", "--max-tokens", "2"]}
    folder = write_run(tmp_path / "run", arch="a", commands=planned)
    run = read_folder(folder)
    assert train_command(run.experiment, run.origin)[-1] == "2"
    (folder / "trained.json").write_text(json.dumps({"command": "fairseq-train 'my data' --max-tokens 1"}))
    run = read_folder(folder)
    assert train_command(run.experiment, run.origin) == ["fairseq-train", "my data", "--max-tokens", "1"]


def test_a_study_names_its_runs(tmp_path: Path) -> None:
    write_run(tmp_path / "data" / "a-seed-1")
    write_run(tmp_path / "data" / "b-seed-1")
    folder = tmp_path / "studies" / "toy"
    folder.mkdir(parents=True)
    entries = [{"name": name, "folder": f"../../data/{name}-seed-1"} for name in "ab"]
    (folder / "study.json").write_text(json.dumps({"title": "Toy", "runs": entries}))
    runs, study = read_runs([folder], None, None)
    assert list(systems_of(runs)) == ["a", "b"]
    assert study["title"] == "Toy"


def test_a_run_of_two_systems_of_a_study_is_shown_once(tmp_path: Path) -> None:
    write_run(tmp_path / "euler-seed-1-encoder-layers-2")
    folder = tmp_path / "study"
    folder.mkdir()
    names = ["Residual, 2", "Residual of 2 times the layers, 1"]
    entries = [{"name": name, "folder": "../euler-seed-1-encoder-layers-2"} for name in names]
    (folder / "study.json").write_text(json.dumps({"title": "Size", "runs": entries}))
    assert [run.name for run in read_runs([folder], None, None)[0]] == ["Residual, 2"]


def test_a_log_without_reports_leaves_out_the_curves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.log").write_text("plain text\n")
    with pytest.raises(UserError, match="no reports in it"):
        read_folder(tmp_path)
    (tmp_path / "scores.json").write_text(json.dumps({"BLEU": vars(Score("BLEU", 1.0, "", "", 9))}))
    run = read_folder(tmp_path)
    assert (run.points, list(run.scores)) == ((), ["BLEU"])
    assert "no curves: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "text", "words", "message"),
    [
        ("none", "", [], "no run: neither train.log nor scores.json nor a checkpoint"),
        ("scores.json", "{", [], "scores.json: not JSON"),
        ("scores.json", '{"BLEU": {"x": 1}}', [], "not scores of ode-transformer evaluate"),
        ("study.json", '{"runs": 3}', [], "not a record of ode-transformer study"),
        ("study.json", '{"runs": [], "tables": [{"title": "a", "rows": [3]}]}', [], "a table without rows"),
        ("experiment.json", '{"scores": [{"split": "test"}]}', [], "not a record of ode-transformer train"),
        ("experiment.json", '{"published": [{"table": "", "system": "", "scores": {"a": "b"}}]}', [], "not a record"),
        ("study.json", '{"runs": []}', [], "none of the study's runs is complete"),
        ("scores.json", "{}", ["--names", "a", "b"], "--names: 2 for 1 runs"),
        ("scores.json", "{}", ["--output", "no/such/r.html"], "no/such/r.html: not a file in an existing directory"),
    ],
)
def test_what_is_no_run_ends_in_one_line(
    tmp_path: Path, file: str, text: str, words: list, message: str, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / file).write_text(text)
    assert main(["report", str(folder), *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert not (tmp_path / "report.html").exists()
