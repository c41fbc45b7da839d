"""GLUE: prepares the eight tasks, fine-tunes over the paper's grid, writes predictions as the server reads them.

bash scripts/glue.sh prepare --pretraining DIR [--raw DIR]
bash scripts/glue.sh finetune --model CHECKPOINT [--dry-run] [-- FLAGS OF fairseq-train]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ode_transformer.corpora.vocabulary import MODEL
from ode_transformer.glue import finetuning, sentence_data
from ode_transformer.glue.download import MRPC_FILES, divide_mrpc, download
from ode_transformer.glue.grid import check_flags, grid_of, read_config
from ode_transformer.glue.pretraining_text import encoder
from ode_transformer.glue.sentence_data import Labelled
from ode_transformer.glue.tasks import TASKS, GlueTask, read_table, submission_text
from ode_transformer.support import commands
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import place
from ode_transformer.support.jobs import Jobs
from ode_transformer.support.lines import read_lines
from ode_transformer.support.schema import CONFIGS

CONFIG = CONFIGS / "glue.yaml"


def prepare(names: Sequence[str], pretraining: Path, raw: Path | None, output: Path) -> None:
    """Tables → pieces of the pre-trained model → binary; what is done already is left out.

    :raises UserError: a file is missing or its contents are not the task's
    """
    dictionary, pieces = pretraining / "dict.txt", pretraining / MODEL
    if not dictionary.is_file():
        raise UserError(f"--pretraining {pretraining}: no dict.txt there")
    words, encode = read_lines(dictionary), encoder(pieces)
    encoding = [words, hashlib.sha256(pieces.read_bytes()).hexdigest()]
    for name in names:
        task, tables = TASKS[name], tables_of(TASKS[name], raw, output / "raw")
        read = {split: read_table(task, tables, split) for split in task.tables}
        splits = {split: [Labelled(row.texts, row.label) for row in rows] for split, (rows, _) in read.items()}
        for split, (rows, broken) in read.items():
            print(f"{name} {split}: {len(rows):,} examples" + (f", {broken} broken rows left out" if broken else ""))
        jobs, made_from = Jobs(output / "text"), [task, read, encoding]
        numbers = {split: [row.index for row in rows] for split, (rows, _) in read.items() if "test" in split}
        labels = {split: [row.label for row in rows] for split, (rows, _) in read.items() if "valid" in split}
        examples = {"train": len(splits["train"]), "labels": labels, "indices": numbers}
        examples["digest"] = jobs.digest_of(made_from)  # results are those of this data

        def make(task: GlueTask = task, splits: dict = splits, examples: dict = examples) -> None:
            binary = output / "data-bin" / task.name
            sentence_data.binarise(splits, task.classes, encode, dictionary, output / "text" / task.name, binary)
            place(binary, {"examples.json": json.dumps(examples)}, "examples.json")

        jobs.run(f"binarise {name}", made_from, output / "data-bin" / name / "examples.json", make)


def tables_of(task: GlueTask, raw: Path | None, made: Path) -> Path:
    """The folder with a task's tables: the user's, or one in ``made`` into which they are downloaded or divided.

    :raises UserError: they cannot be downloaded; a file for dividing them is broken
    """
    given, tables = raw and raw / task.name, made / task.name
    name, last = f"tables of {task.name}", tables / task.tables["train"]
    if given is None:
        Jobs(made).run(name, task.sources, last, lambda: download(task, tables))
        return tables
    if task.name != "MRPC" or (given / "train.tsv").exists() or not (given / MRPC_FILES[0]).exists():
        return given
    files = [[str(path), path.stat().st_size, path.stat().st_mtime_ns] for path in sorted(given.iterdir())]
    Jobs(made).run(name, files, last, lambda: divide_mrpc(given, tables))
    return tables


@dataclass(frozen=True)
class Run:
    """One fine-tuning of a task.

    :param folder: for its log, checkpoints and results
    :param command: of fairseq-train
    :param asked: all that its results depend on
    """

    folder: Path
    command: list[Any]
    asked: list[Any]

    def completed(self) -> bool:
        """Whether there are results, and of what is asked for now."""
        return Jobs(self.folder).is_done("finetune", self.asked, self.folder / "results.json")

    def results(self) -> dict[str, Any]:
        """Development metrics and test predictions, by development split."""
        results: dict[str, Any] = json.loads((self.folder / "results.json").read_text(encoding="utf-8"))
        return results

    def scores(self) -> dict[str, float]:
        """What runs are compared by, for each development split."""
        return {split: statistics.mean(values["dev"].values()) for split, values in self.results().items()}


def finetune(
    names: Sequence[str],
    model: Path,
    output: Path,
    config: dict[str, dict[str, Any]],
    train_flags: Sequence[str],
    dry_run: bool,
) -> None:
    """Trains and compares all runs of each task; the best predict the test sets.

    A run that has its results already is left out. Of the completed runs, those keep their checkpoints that are best.

    :raises UserError: a flag would change what the grid or the recipe sets; a task is not prepared; the model is none
        that can be fine-tuned, or has another dictionary
    """
    check_flags(train_flags, config)
    table = []
    options = finetuning.model_options(model) | config["train"] | {"finetune-from-model": model.resolve()}
    for name in names:
        task, data = TASKS[name], output / "data-bin" / name
        if not (data / "examples.json").exists():
            raise UserError(f"{data}: not prepared; first: bash scripts/glue.sh prepare --tasks {name}")
        finetuning.check_dictionary(model, data / "input0" / "dict.txt")
        examples = json.loads((data / "examples.json").read_text(encoding="utf-8"))
        runs = []
        for point in grid_of(config):
            folder = output / "runs" / name / ",".join(f"{key}={value}" for key, value in point.items())
            flags = finetuning.training_options(
                data, examples["train"], task.outputs, not task.classes, folder / "checkpoints", options | point
            )
            command = ["fairseq-train", data, *commands.flags(flags), *train_flags]
            asked = [*map(str, command), model.stat().st_size, model.stat().st_mtime_ns, examples["digest"]]
            runs.append(Run(folder, command, asked))
        if dry_run:
            for run in runs:
                commands.show(run.command)
            continue
        scores = {run.folder: run.scores() for run in runs if run.completed()}
        for run in runs:
            complete(task, data, run, examples)
            scores[run.folder] = run.scores()
            # A run that is half trained is not among the scores: it needs its checkpoints to go on.
            for folder in scores.keys() - {best.folder for best in best_of(runs, scores).values()}:
                shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        for split, run in best_of(runs, scores).items():
            values, test = run.results()[split], split.replace("valid", "test")
            rows = list(zip(examples["indices"][test], values["test"], strict=True))
            file = f"{task.submission(test)}.tsv"
            place(output / "submission", {file: submission_text(task, rows)}, file)
            measured = ", ".join(f"{metric} {value:.2f}" for metric, value in values["dev"].items())
            table.append(f"| {task.submission(test)} | {measured} | {run.folder.name} |")
    if table:
        head = ["| task | development set | best run |", "|---|---|---|"]
        text = "\n".join([*head, *table]) + "\n"
        place(output, {"results.md": text}, "results.md")
        print(f"\n{text}\npredictions for the test sets: {output / 'submission'}")


def complete(task: GlueTask, data: Path, run: Run, examples: dict[str, Any]) -> None:
    """Trains and predicts, unless that is done."""
    from ode_transformer.glue.metrics import evaluate

    jobs, checkpoints = Jobs(run.folder), run.folder / "checkpoints"

    def make() -> None:
        # Interrupted, the same training goes on from its last checkpoint; another one begins anew.
        begun = run.folder / "train.begun"
        request = jobs.digest_of(run.asked)
        resume = begun.exists() and begun.read_text() == request
        if not resume:
            shutil.rmtree(checkpoints, ignore_errors=True)
        place(run.folder, {begun.name: request}, begun.name)
        commands.run(run.command, run.folder / "train.log", append=resume)
        said = finetuning.predict(checkpoints / "checkpoint_last.pt", data, list(task.tables)[1:])
        results = {}
        for split, labels in examples["labels"].items():
            values = said[split] if task.classes else [float(value) for value in said[split]]
            truth = labels if task.classes else [float(label) for label in labels]
            results[split] = {
                "dev": evaluate(task.metrics, values, truth),
                "test": said[split.replace("valid", "test")],
            }
        place(run.folder, {"results.json": json.dumps(results)}, "results.json")

    run.folder.mkdir(parents=True, exist_ok=True)
    jobs.run("finetune", run.asked, run.folder / "results.json", make)
    measured = "; ".join(str(values["dev"]) for values in run.results().values())
    print(f"{task.name} {run.folder.name}: {measured}", flush=True)


def best_of(runs: Sequence[Run], scores: Mapping[Path, Mapping[str, float]]) -> dict[str, Run]:
    """The run with the highest score for each development split; of equals, the first of the grid.

    :param scores: of the completed runs, by folder and split
    """
    done = [run for run in runs if run.folder in scores]
    splits = scores[done[0].folder] if done else ()
    return {split: max(done, key=lambda run: scores[run.folder][split]) for split in splits}


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Reads the command line; what follows -- is left in ``train_flags``."""
    parser = argparse.ArgumentParser(prog="glue", description="Fine-tunes a pre-trained encoder on GLUE.")
    steps = parser.add_subparsers(dest="step", metavar="STEP", required=True)
    preparing = steps.add_parser("prepare", help="tables, downloaded or at hand, to binary data")
    preparing.add_argument("--pretraining", type=Path, required=True, help=f"folder with dict.txt and {MODEL}")
    preparing.add_argument("--raw", type=Path, help="folder with the tasks' folders, instead of downloading them")
    tuning = steps.add_parser("finetune", help="the grid, the best on the development sets, predictions")
    tuning.add_argument("--model", type=Path, required=True, help="checkpoint of the pre-trained model")
    tuning.add_argument("--config", type=Path, default=CONFIG, help="grid and flags (default: configs/glue.yaml)")
    tuning.add_argument("--dry-run", action="store_true", help="print the commands and run none")
    for step in (preparing, tuning):
        step.add_argument("--tasks", default=",".join(TASKS), help="divided by commas (default: %(default)s)")
        step.add_argument("--output", type=Path, default=Path("glue"), help="folder for everything (default: glue)")
    own, train_flags = commands.divide_words(argv)
    args = parser.parse_args(own)
    args.train_flags = train_flags
    args.tasks = args.tasks.split(",")
    if unknown := [name for name in args.tasks if name not in TASKS]:
        raise UserError(f"--tasks {unknown[0]}: unknown; known are {', '.join(TASKS)}")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""

    def work() -> None:
        args = parse(argv)
        if args.step == "prepare":
            prepare(args.tasks, args.pretraining, args.raw, args.output)
        else:
            finetune(args.tasks, args.model, args.output, read_config(args.config), args.train_flags, args.dry_run)

    return commands.status_of("glue", work)


if __name__ == "__main__":
    sys.exit(main())
