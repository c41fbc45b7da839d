"""Grid search without trainings: which runs are trained again, and which checkpoints stay."""

import json
from pathlib import Path

import pytest

from ode_transformer.checkpoints.reading import save_checkpoint
from ode_transformer.cli import main
from ode_transformer.glue import finetuning, grid_search
from ode_transformer.glue.grid import GlueConfig
from ode_transformer.support import commands
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import lock_directory


def test_unknown_task(capsys) -> None:
    assert main(["analyse", "glue", "finetune", "--tasks", "no-such-task", "--model", "m.pt"]) == 2
    assert "--tasks no-such-task: unknown; known are CoLA" in capsys.readouterr().err


class Killed(Exception):
    """A training stopped from outside."""


class StandIn:
    """A stand-in for fairseq: the run of each seed predicts a fixed number of four development examples correctly.

    :param output: folder of the benchmark
    """

    def __init__(self, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.correct_predictions = {1: 2, 2: 4, 3: 1}  # by seed
        self.killed_seed = 0
        self.trainings: list[tuple[int, bool]] = []  # seed, and whether it was resumed
        self.output, self.model = output, output / "model.pt"
        for task in ("RTE", "QNLI"):
            (output / "data-bin" / task).mkdir(parents=True)
        self.model.touch()
        self.write_examples("first")
        monkeypatch.setattr(finetuning, "model_options", lambda _: {"arch": "ode_bert_tiny"})
        monkeypatch.setattr(finetuning, "check_dictionaries", lambda *_: None)
        monkeypatch.setattr(finetuning, "predict", self.predict)
        monkeypatch.setattr(commands, "run", self.train)

    def write_examples(self, digest: str) -> None:
        examples = {"train": 8, "labels": {"valid": ["entailment"] * 4}, "indices": {"test": ["0"]}, "digest": digest}
        for task in ("RTE", "QNLI"):
            (self.output / "data-bin" / task / "examples.json").write_text(json.dumps(examples))

    def train(self, command: list, log: Path, progress: None, append: bool, threads: None) -> None:
        seed = int(log.parent.name.rpartition("=")[2])
        self.trainings.append((seed, append))
        (log.parent / "checkpoints").mkdir(exist_ok=True)
        checkpoint = {"optimizer_history": [{"num_updates": 1}], "model": {}}
        save_checkpoint(checkpoint, log.parent / "checkpoints" / "checkpoint_last.pt")
        if seed == self.killed_seed:
            raise Killed

    def predict(self, checkpoint: Path, data: Path, splits: list[str]) -> dict[str, list[str]]:
        correct = self.correct_predictions[int(checkpoint.parents[1].name.rpartition("=")[2])]
        return {"valid": ["entailment"] * correct + ["not_entailment"] * (4 - correct), "test": ["entailment"]}

    def fine_tune(self, task: str = "RTE") -> list[int]:
        """Search the grid of a task; return the seeds whose runs were trained."""
        grid = {"batch-size": [4], "lr": [0.001], "max-epoch": [1], "seed": list(self.correct_predictions)}
        self.trainings.clear()
        grid_search.fine_tune([task], self.model, self.output, GlueConfig(grid=grid, train={}), [], False)
        return [seed for seed, _ in self.trainings]

    @property
    def seeds_with_checkpoints(self) -> list[int]:
        """Seeds whose checkpoints exist."""
        folders = (self.output / "runs" / "RTE").glob("*/checkpoints")
        return sorted(int(folder.parent.name.rpartition("=")[2]) for folder in folders)


def test_flags_run_no_code(tmp_path: Path, monkeypatch) -> None:
    runs = StandIn(tmp_path, monkeypatch)
    grid = {"batch-size": [4], "lr": [0.001], "max-epoch": [1], "seed": [1]}
    code = {"adam-betas": f"open('{tmp_path / 'ran'}', 'w')"}
    for more, train in (({}, code), ({"adam-betas": ["(0.9,0.98)", *code.values()]}, {})):
        config = GlueConfig(grid=grid | more, train={"optimizer": "adam"} | train)
        with pytest.raises(UserError, match="is Python code, which is refused"):
            grid_search.fine_tune(["RTE"], runs.model, runs.output, config, [], False)
    assert not (tmp_path / "ran").exists()
    assert runs.trainings == []


def test_the_best_checkpoints_survive_a_repeat(tmp_path: Path, monkeypatch) -> None:
    runs = StandIn(tmp_path, monkeypatch)
    assert runs.fine_tune() == [1, 2, 3]
    assert runs.seeds_with_checkpoints == [2]
    assert runs.fine_tune() == []
    assert runs.seeds_with_checkpoints == [2]


@pytest.mark.parametrize(
    ("killed_seed", "seeds_with_checkpoints", "trained_seeds"), [(2, [1, 2], [2, 3]), (3, [2, 3], [3])]
)
def test_a_half_trained_run_keeps_its_checkpoints(
    tmp_path: Path, monkeypatch, killed_seed, seeds_with_checkpoints, trained_seeds
) -> None:
    runs = StandIn(tmp_path, monkeypatch)
    runs.killed_seed = killed_seed
    for _ in range(2):
        with pytest.raises(Killed):
            runs.fine_tune()
        assert runs.seeds_with_checkpoints == seeds_with_checkpoints
    assert runs.trainings[0] == (killed_seed, True)  # resumed from its checkpoint
    runs.killed_seed = 0
    assert runs.fine_tune() == trained_seeds
    assert runs.seeds_with_checkpoints == [2]


def test_other_data_or_another_model_is_trained_again(tmp_path: Path, monkeypatch) -> None:
    runs = StandIn(tmp_path, monkeypatch)
    runs.fine_tune()
    runs.write_examples("second")
    assert runs.fine_tune() == [1, 2, 3]
    assert not any(append for _, append in runs.trainings)
    runs.model.write_text("another")
    assert runs.fine_tune() == [1, 2, 3]


def test_the_table_keeps_tasks_of_other_calls(tmp_path: Path, monkeypatch) -> None:
    runs = StandIn(tmp_path, monkeypatch)

    def tasks() -> list[str]:
        return [line.split()[1] for line in (tmp_path / "results.md").read_text().splitlines()[2:]]

    runs.fine_tune("RTE")
    assert tasks() == ["RTE"]
    runs.fine_tune("QNLI")
    assert tasks() == ["QNLI", "RTE"]
    runs.write_examples("second")  # both are prepared anew
    runs.fine_tune("RTE")
    assert tasks() == ["RTE"]


def test_a_diverged_task_leaves_the_others_their_results(tmp_path: Path, monkeypatch) -> None:
    runs = StandIn(tmp_path, monkeypatch)
    runs.fine_tune("RTE")
    whole = grid_search.submission_text

    def diverged(task, predictions: list) -> str:
        return whole(task, [(number, "nan" if task.name == "RTE" else value) for number, value in predictions])

    monkeypatch.setattr(grid_search, "submission_text", diverged)
    with pytest.raises(UserError, match="RTE, test example 0: the best run predicts nan, so all have diverged"):
        runs.fine_tune("QNLI")
    assert (tmp_path / "submission" / "QNLI.tsv").is_file()
    rows = [line.split("|")[1:3] for line in (tmp_path / "results.md").read_text().splitlines()[2:]]
    assert [[cell.split()[0] for cell in row] for row in rows] == [["QNLI", "accuracy"], ["RTE", "diverged"]]


def test_a_run_is_locked(tmp_path: Path, monkeypatch) -> None:
    runs = StandIn(tmp_path, monkeypatch)
    runs.killed_seed = 2
    with pytest.raises(Killed):
        runs.fine_tune()
    (folder,) = (tmp_path / "runs" / "RTE").glob("*seed=2")
    with (
        lock_directory(folder, "fine-tuning"),
        pytest.raises(UserError, match="seed=2: another process is fine-tuning here"),
    ):
        runs.fine_tune()
