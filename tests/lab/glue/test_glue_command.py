"""Grid search without trainings: which runs are trained again, and which checkpoints stay; ``reproduce glue``."""

import argparse
import shlex
from pathlib import Path

import pytest

from ode_transformer.checkpoints.reading import save_checkpoint
from ode_transformer.cli import main
from ode_transformer.lab.glue import arguments, finetuning
from ode_transformer.lab.glue.finetuning import PreparedTask
from ode_transformer.lab.glue.glue_command import GlueConfig, plan_runs, train_grid
from ode_transformer.lab.glue.tasks import TASKS, Example
from ode_transformer.models import fairseq_parser
from ode_transformer.support import commands


class StandIn:
    """A stand-in for fairseq: the run of each seed predicts a fixed number of four development examples correctly."""

    def __init__(self, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.correct_predictions = {1: 2, 2: 4, 3: 1}  # by seed
        self.trainings: list[tuple[int, bool]] = []  # seed, and whether it was resumed
        self.output, self.model = output, output / "model.pt"
        self.model.touch()
        monkeypatch.setattr(finetuning, "predict", self.predict)
        monkeypatch.setattr(commands, "run", self.train)

    def train(self, command: list, log: Path, *_: object, append: bool, **__: object) -> None:
        seed = int(log.parent.name.rpartition("=")[2])
        self.trainings.append((seed, append))
        (log.parent / "checkpoints").mkdir(exist_ok=True)
        checkpoint = {"optimizer_history": [{"num_updates": 1}], "model": {}}
        save_checkpoint(checkpoint, log.parent / "checkpoints" / "checkpoint_last.pt")

    def predict(self, checkpoint: Path, data: Path, splits: list[str]) -> dict[str, list[str]]:
        correct = self.correct_predictions[int(checkpoint.parents[1].name.rpartition("=")[2])]
        return {"valid": ["entailment"] * correct + ["not_entailment"] * (4 - correct), "test": ["entailment"]}

    def fine_tune(self) -> list[int]:
        """Search the grid of a task; return the seeds whose runs were trained."""
        grid = {"batch-size": [4], "lr": [0.001], "max-epoch": [1], "seed": list(self.correct_predictions)}
        self.trainings.clear()
        examples = [Example(("a", "b"), "entailment", "0")] * 4
        prepared = PreparedTask(TASKS["RTE"], self.output / "data", {"train": examples, "valid": examples}, "digest")
        runs = plan_runs(prepared, self.output, self.model, {}, GlueConfig(grid=grid, train={}))
        train_grid(prepared, runs)
        return [seed for seed, _ in self.trainings]

    @property
    def seeds_with_checkpoints(self) -> list[int]:
        """Seeds whose checkpoints exist."""
        folders = (self.output / "runs" / "RTE").glob("*/checkpoints")
        return sorted(int(folder.parent.name.rpartition("=")[2]) for folder in folders)


def test_the_best_checkpoints_survive_a_repeat(tmp_path: Path, monkeypatch) -> None:
    runs = StandIn(tmp_path, monkeypatch)
    assert runs.fine_tune() == [1, 2, 3]
    assert runs.seeds_with_checkpoints == [2]
    assert runs.fine_tune() == []
    assert runs.seeds_with_checkpoints == [2]
    runs.model.write_text("another")
    assert runs.fine_tune() == [1, 2, 3]
    assert not any(append for _, append in runs.trainings)


def test_reproduce_composes_the_commands(tmp_path: Path, capsys) -> None:
    words = ["--arch", "ode_bert_base", "--dry-run", "--gpus", "4", "--output", str(tmp_path / "out")]
    assert main(["reproduce", "glue", *words]) == 0
    shown = [shlex.split(line.removeprefix("+ ")) for line in capsys.readouterr().out.splitlines() if line[:2] == "+ "]
    assert not (tmp_path / "out").exists()
    train = shown[1][shown[1].index("fairseq-train") : shown[1].index(">")]
    args = fairseq_parser.parse(train[0], train[1:])
    assert (args.arch, args.task) == ("ode_bert_base", "masked_lm")
    assert args.max_tokens * args.update_freq[0] * 4 == 128_000
    trained, last = Path(args.save_dir).parent, shown[-1]
    assert last[:3] == ["ode-transformer", "analyse", "glue"]
    parser = argparse.ArgumentParser()
    arguments.glue(parser)
    glue = parser.parse_args(last[3:])
    assert (glue.path, glue.data) == (trained / "model" / "model.pt", trained / "model")
