"""Grid search without trainings: which runs are trained again, and which checkpoints stay; ``reproduce glue``."""

import argparse
import shlex
from pathlib import Path

import pytest
import yaml
from forked_commands import run_quickly
from glue_tables import sentence, write_tables

from ode_transformer.checkpoints.reading import save_checkpoint
from ode_transformer.cli import main
from ode_transformer.glue import finetuning, glue_command
from ode_transformer.glue.finetuning import PreparedTask
from ode_transformer.glue.glue_command import CONFIG, GlueConfig, plan_runs, train_grid
from ode_transformer.glue.tasks import TASKS, Example
from ode_transformer.models import fairseq_parser
from ode_transformer.recipes.options import RunOptions, find_recipe
from ode_transformer.support import commands
from ode_transformer.support.yaml_file import read_yaml

TINY = {"encoder-layers": 1, "encoder-embed-dim": 16, "encoder-ffn-embed-dim": 16, "encoder-attention-heads": 2}


def test_the_papers_grid() -> None:
    points = read_yaml(CONFIG, GlueConfig).points()
    assert len(points) == 2 * 2 * 2 * 3 * 4
    assert points[0] == {"weight-decay": 0.0, "batch-size": 16, "lr": 5e-5, "max-epoch": 3, "seed": 200}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tasks", "no-such-task"], "--tasks no-such-task: unknown; known are CoLA"),
        (["--", "--batch-size", "8"], "--batch-size after --: the grid of --config sets it for each run"),
    ],
)
def test_options_are_refused_in_one_line(words: list[str], message: str, capsys) -> None:
    assert main(["analyse", "glue", "--path", "m.pt", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


class Killed(Exception):
    """A training stopped from outside."""


class StandIn:
    """A stand-in for fairseq: the run of each seed predicts a fixed number of four development examples correctly."""

    def __init__(self, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.correct_predictions = {1: 2, 2: 4, 3: 1}  # by seed
        self.killed_seed = 0
        self.trainings: list[tuple[int, bool]] = []  # seed, and whether it was resumed
        self.output, self.model = output, output / "model.pt"
        self.model.touch()
        monkeypatch.setattr(finetuning, "predict", self.predict)
        monkeypatch.setattr(commands, "run", self.train)

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


def test_reproduce_composes_the_commands(tmp_path: Path, capsys) -> None:
    words = ["--arch", "ode_bert_base", "--dry-run", "--gpus", "4", "--output", str(tmp_path / "out")]
    assert main(["reproduce", "glue", *words]) == 0
    shown = [shlex.split(line.removeprefix("+ ")) for line in capsys.readouterr().out.splitlines() if line[:2] == "+ "]
    assert not (tmp_path / "out").exists()
    train = shown[1][shown[1].index("fairseq-train") : shown[1].index(">")]
    args = fairseq_parser.parse(train[0], train[1:])
    assert (args.arch, args.task, args.criterion) == ("ode_bert_base", "masked_lm", "masked_lm")
    assert args.max_tokens * args.update_freq[0] * 4 == 128_000
    trained, last = Path(args.save_dir).parent, shown[-1]
    assert last[:3] == ["ode-transformer", "analyse", "glue"]
    parser = argparse.ArgumentParser()
    glue_command.add_arguments(parser)
    glue = parser.parse_args(last[3:])
    assert (glue.path, glue.data) == (trained / "checkpoints" / "checkpoint_last.pt", trained / "model")


def test_a_table_is_every_system_of_it(monkeypatch, capsys) -> None:
    archs = []
    monkeypatch.setattr(glue_command, "reproduce", lambda config, options: archs.append(options.arch))
    assert main(["reproduce", "glue", "--table", "Lu et al. 2019, Table 2"]) == 0
    assert archs == ["ode_bert_base", "macaron_bert_base"]
    assert main(["reproduce", "glue", "--table", "Table 9"]) == 2
    assert "not among the published results of glue: Lu et al. 2019, Table 2" in capsys.readouterr().err


@pytest.mark.slow
def test_from_raw_files_to_the_table(tmp_path: Path, monkeypatch, capsys) -> None:
    run_quickly(monkeypatch)
    recipe = yaml.safe_load(find_recipe("bert_pretraining").read_text(encoding="utf-8"))
    recipe["vocabulary"]["size"], recipe["corpus"]["valid_fraction"], recipe["tokens_per_update"] = 40, 0.1, 1000
    recipe["train"] |= TINY | {"max-update": 4, "total-num-update": 4, "max-tokens": 1000, "tokens-per-sample": 40}
    recipe["average"]["every"] = 2
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    names = ["CoLA", "MRPC", "STS-B"]
    raw = tmp_path / "raw"
    for name in names:
        write_tables(raw, name)
    (raw / "bert").mkdir()
    for file, step in (("wikipedia", 1), ("books", 2)):
        lines = [f"{sentence(number * step)} {number}\n" + "\n" * (number % 3 == 0) for number in range(150)]
        (raw / "bert" / f"{file}.txt").write_text("".join(lines))
    grid = {"batch-size": [4], "lr": [0.001], "max-epoch": [1], "seed": [1]}
    pretraining = {"grid": grid, "pretraining": str(tmp_path / "small.yaml")}
    config = read_yaml(CONFIG, GlueConfig).model_copy(update=pretraining)
    monkeypatch.setattr(glue_command, "TASKS", {name: TASKS[name] for name in names})
    options = RunOptions(output=tmp_path / "out", raw=raw, gpus=0)
    glue_command.reproduce(config, options)
    printed = capsys.readouterr().out
    assert printed.count("--task symmetric_sentence_prediction ") == 2
    table = (tmp_path / "out" / "glue" / "macaron_bert_base" / "results.md").read_text()
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    assert head[-1] == "Lu et al. 2019, Table 2: Macaron Net base, test set"
    assert [(row[0], row[-1]) for row in rows] == [("CoLA", "57.6"), ("MRPC", "88.4, 84.4"), ("STS-B", "87.5, 86.3")]
    glue_command.reproduce(config, options)
    assert "+ fairseq-train" not in capsys.readouterr().out
