"""A study of small models: trained by the real commands, killed half-way, and told in the same table as without."""

import csv
from pathlib import Path

import pytest
import yaml
from forked_commands import run_quickly
from killed_commands import kill_command
from recipes_for_tests import Runner

from ode_transformer.cli import main
from ode_transformer.lab.recipes import workflow

SYSTEMS = [
    {"name": "Residual", "arch": "ode_transformer_euler_tiny"},
    {"name": "RK2", "arch": "ode_transformer_rk2_tiny", "flags": {"ode-coefficients": "tableau"}},
    {"name": "twice", "arch": "ode_transformer_euler_tiny", "depth": 2, "control": "compute"},
]


class StudyOf:
    """A study of a small recipe."""

    def __init__(self, run: Runner) -> None:
        self.run, self.path = run, run.folder / "toy.yaml"
        self.write(SYSTEMS)

    def write(self, systems: list[dict], **setting: object) -> None:
        study = {
            **{"title": "Toy", "source": "nowhere", "seeds": [1, 2], "systems": systems},
            "settings": {"here": {"recipe": str(self.run.path), **setting}},
            "analyses": {"norms": "curves {runs} --what gradient-norm --output {output}.png"},
        }
        self.path.write_text(yaml.safe_dump(study))

    def words(self, *more: object) -> list[str]:
        return list(map(str, ["study", self.path, "--output", self.run.output, "--workers", 1, "--gpus", 0, *more]))

    def __call__(self, *more: object) -> int:
        return main(self.words("--raw", self.run.raw, *more))

    @property
    def results(self) -> Path:
        return self.run.output / "studies" / "toy-here"

    def table(self) -> str:
        """Without the line that says when and how."""
        return "\n\n".join((self.results / "results.md").read_text().split("\n\n")[:-1])

    def numbers(self) -> list[dict[str, str]]:
        """Without the time that it took."""
        with open(self.results / "results.csv", newline="") as file:
            return [{key: value for key, value in row.items() if key != "minutes"} for row in csv.DictReader(file)]


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StudyOf:
    run_quickly(monkeypatch)
    return StudyOf(Runner("multi30k_en_de", tmp_path, monkeypatch))


def leave_out_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a study write its tables alone: its report takes longer."""
    monkeypatch.setattr(workflow, "write_report", lambda *_: None)


@pytest.mark.slow
def test_killed_half_way(study: StudyOf, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    study.run.change("train", max_update=8)
    study.write([SYSTEMS[0], SYSTEMS[2]])
    assert study.run("prepare") == 0
    data = study.run.data

    def second_is_training() -> bool:
        return len({path.parent for path in data.glob("*/checkpoints/checkpoint[0-9]*.pt")}) == 2

    kill_command(study.words("--seeds", 1), second_is_training)
    assert not (study.results / "results.md").exists()
    assert study("--seeds", 1) == 0
    resumed, numbers = study.table(), study.numbers()
    assert len(numbers) == 2
    assert {row["updates"] for row in numbers} == {"8"}
    assert (study.results / "results.png").stat().st_size > 10_000
    page = (study.results / "report.html").read_text()
    assert "Differences to the first system" in page
    assert page.count('<th scope="row">twice') >= 2  # among the systems and their differences
    assert (study.results / "norms.png").stat().st_size > 10_000
    capsys.readouterr()
    assert study("--seeds", 1) == 0
    output = capsys.readouterr().out
    assert "== train: already done" in output
    assert "\n+ " not in output.partition("=== Residual, seed 1")[2]  # no command is run again
    data.rename(study.run.folder / "stopped")
    leave_out_the_report(monkeypatch)
    assert study("--seeds", 1) == 0
    assert (study.table(), study.numbers()) == (resumed, numbers)


@pytest.mark.slow
def test_each_system_gets_its_learning_rate(study: StudyOf, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """Both trials of each system with the grid's seed; then the other seed with the better value, and the table."""
    leave_out_the_report(monkeypatch)
    study.run.change("train", max_update=3)
    study.write(SYSTEMS[:2], tuning={"grid": {"lr": [0.02, 1e-9], "dropout attention-dropout": [0.2]}})
    assert study("--seeds", "1,2") == 0
    runs = sorted(path.parent.name for path in study.run.data.glob("*/train.log"))
    assert len(runs) == 6
    assert sum("1e-09" in name for name in runs) == 2
    assert all("attention-dropout-0.2" in name for name in runs)
    assert {(row["system"], row["seed"]) for row in study.numbers()} == {
        (system, seed) for system in ("Residual", "RK2") for seed in "12"
    }
    table = study.table()
    assert table.count("| dropout 0.2, lr 0.02 |") == 3  # head and choice of each system
    for part in ("Equal updates, equal compute", "Paired test over sentences"):
        assert f"## {part}" in table
    assert len((study.results / "validations.csv").read_text().splitlines()) > 4
    capsys.readouterr()
    assert study("--seeds", "1,2") == 0
    assert "+ fairseq-train" not in capsys.readouterr().out
