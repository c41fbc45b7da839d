"""Grid search on prepared GLUE tasks: fine-tune every combination, predict the test sets with the best models."""

from __future__ import annotations

import contextlib
import json
import shutil
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ode_transformer.glue import finetuning
from ode_transformer.glue.grid import GlueConfig, PublishedGlue
from ode_transformer.glue.preparation import PreparedTask, load_prepared_task, prepared_folder
from ode_transformer.glue.tasks import TASKS, submission_text
from ode_transformer.models import fairseq_parser
from ode_transformer.recipes.training import TrainingRecord, train
from ode_transformer.support import commands
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import file_stamp, lock_directory, write_files
from ode_transformer.support.jobs import Jobs
from ode_transformer.support.json_file import read_json
from ode_transformer.support.tables import markdown_table


@dataclass(frozen=True)
class GridRun:
    """One fine-tuning of a task.

    :param folder: folder for its log, checkpoints and results
    :param command: command of fairseq-train
    :param request: everything that its results depend on
    """

    folder: Path
    command: list[Any]
    request: list[Any]

    def is_complete(self) -> bool:
        """Return True if there are results of exactly this request."""
        return Jobs(self.folder).is_done("finetune", self.request, self.folder / "results.json")

    def results(self) -> dict[str, Any]:
        """Return development metrics and test predictions for each development split."""
        return read_json(self.folder / "results.json", dict)

    def scores(self) -> dict[str, float]:
        """Return the mean of the metrics for each development split; it ranks the runs."""
        return {split: statistics.mean(values["dev"].values()) for split, values in self.results().items()}


def fine_tune(
    names: Sequence[str],
    model: Path,
    output: Path,
    config: GlueConfig,
    train_flags: Sequence[str],
    dry_run: bool,
) -> None:
    """Train all runs of each task, then write the best predictions and a table of the best runs of all complete tasks.

    :param train_flags: flags of fairseq-train for every run
    :param dry_run: print the commands instead
    :raises UserError: a flag would change what the grid or the recipe sets; a task is not prepared; the model cannot
        be fine-tuned, or has another dictionary
    """
    config.check_flags(train_flags)
    options = finetuning.model_options(model) | config.train | {"finetune-from-model": model.resolve()}

    def planned(name: str) -> tuple[PreparedTask, list[GridRun]]:
        prepared = load_prepared_task(name, output)
        return prepared, plan_runs(prepared, output, model, options | config.task_flags(name), config, train_flags)

    finetuning.check_dictionaries(model, [prepared_folder(name, output) / "input0" / "dict.txt" for name in names])
    plans = {name: planned(name) for name in names}
    if dry_run:
        for _, runs in plans.values():
            for run in runs:
                commands.print_command(run.command)
        return
    best = {name: train_grid(prepared, runs) for name, (prepared, runs) in plans.items()}
    for name in TASKS.keys() - plans.keys():  # what other calls have completed stays in the table
        with contextlib.suppress(UserError):  # not prepared
            prepared, runs = plans[name] = planned(name)
            if all(run.is_complete() for run in runs):  # which says that they are of this model
                best[name] = best_runs(runs, {run.folder: run.scores() for run in runs})
    published = [entry for entry in config.expected if entry.arch == options["arch"]]
    rows, failures = [], []
    for name in filter(best.__contains__, TASKS):
        for split, run in best[name].items():
            try:
                row = write_submission(plans[name][0], split, run, output / "submission")
            except UserError as error:  # which leaves the other tasks their results
                failures.append(str(error))
                row = [plans[name][0].task.submission(split.replace("valid", "test")), "diverged", run.folder.name]
            rows.append([*row, *(_published_cell(entry, row[0]) for entry in published)])
    titles = ["task", "development set", "best run"]
    titles += [f"{entry.table}: {entry.system}, test set" for entry in published]
    text = markdown_table(titles, rows, "l" * len(titles)) + "\n"
    write_files(output, {"results.md": text}, "results.md")
    print(f"\n{text}\npredictions for the test sets: {output / 'submission'}")
    if failures:
        raise UserError("; ".join(failures))


def plan_runs(
    prepared: PreparedTask,
    output: Path,
    model: Path,
    options: Mapping[str, Any],
    config: GlueConfig,
    train_flags: Sequence[str],
) -> list[GridRun]:
    """Return a task's runs, one for each combination of the grid.

    :param options: flags of fairseq-train by name, for every run of the task
    :raises UserError: fairseq-train rejects the flags
    """
    runs = []
    for point in config.points():
        task = prepared.task
        folder = output / "runs" / task.name / ",".join(f"{key}={value}" for key, value in point.items())
        flags = finetuning.training_options(
            prepared.train_size,
            task.outputs,
            not task.classes,
            folder / "checkpoints",
            {**options, **point},
        )
        command = ["fairseq-train", prepared.data, *commands.flags(flags), *train_flags]
        fairseq_parser.parse("fairseq-train", [str(word) for word in command[1:]])
        request = [*map(str, command), *file_stamp(model), prepared.digest]
        runs.append(GridRun(folder, command, request))
    return runs


def _published_cell(entry: PublishedGlue, name: str) -> str:
    return ", ".join(f"{score:.1f}" for score in entry.scores.get(name, []))


def train_grid(prepared: PreparedTask, runs: Sequence[GridRun]) -> dict[str, GridRun]:
    """Train and evaluate all runs, skipping complete ones; return the best run for each development split.

    Of the complete runs only the best keep their checkpoints.
    """
    scores = {run.folder: run.scores() for run in runs if run.is_complete()}
    for run in runs:
        complete_run(prepared, run)
        scores[run.folder] = run.scores()
        # An interrupted run has no scores yet, and keeps its checkpoints to resume from.
        for folder in scores.keys() - {best.folder for best in best_runs(runs, scores).values()}:
            shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    return best_runs(runs, scores)


def complete_run(prepared: PreparedTask, run: GridRun) -> None:
    """Train a run and predict with its last checkpoint; skip it if it is complete."""
    from ode_transformer.glue.metrics import evaluate

    jobs, checkpoints, task = Jobs(run.folder), run.folder / "checkpoints", prepared.task

    def train_and_predict() -> None:
        digest = jobs.digest_of(run.request)
        if not TrainingRecord(run.folder).matches(digest):
            shutil.rmtree(checkpoints, ignore_errors=True)  # a fine-tuning takes minutes: nobody wants the old one back
        train(run.command, run.folder, checkpoints, digest)
        predictions = finetuning.predict(checkpoints / "checkpoint_last.pt", prepared.data, list(task.tables)[1:])
        results = {}
        for split, labels in prepared.labels.items():
            answers = predictions[split] if task.classes else [float(value) for value in predictions[split]]
            truth = labels if task.classes else [float(label) for label in labels]
            test = predictions[split.replace("valid", "test")]
            results[split] = {"dev": evaluate(task.metrics, answers, truth), "test": test}
        write_files(run.folder, {"results.json": json.dumps(results)}, "results.json")

    with lock_directory(run.folder, "fine-tuning"):
        jobs.run("finetune", run.request, run.folder / "results.json", train_and_predict)
    metrics = "; ".join(str(values["dev"]) for values in run.results().values())
    print(f"{task.name} {run.folder.name}: {metrics}", flush=True)


def best_runs(runs: Sequence[GridRun], scores: Mapping[Path, Mapping[str, float]]) -> dict[str, GridRun]:
    """Return the run with the highest score for each development split; of equals, the first of the grid.

    :param scores: scores of the complete runs, by folder and split
    """
    complete_runs = [run for run in runs if run.folder in scores]
    splits = scores[complete_runs[0].folder] if complete_runs else ()
    return {split: max(complete_runs, key=lambda run: scores[run.folder][split]) for split in splits}


def write_submission(prepared: PreparedTask, split: str, run: GridRun, folder: Path) -> list[str]:
    """Write the test predictions of the best run for a development split; return its row of the table of results.

    :raises UserError: a prediction is not a number
    """
    results, test = run.results()[split], split.replace("valid", "test")
    name = prepared.task.submission(test)
    predictions = list(zip(prepared.indices[test], results["test"], strict=True))
    write_files(folder, {f"{name}.tsv": submission_text(prepared.task, predictions)}, f"{name}.tsv")
    metrics = ", ".join(f"{metric} {value:.2f}" for metric, value in results["dev"].items())
    return [name, metrics, run.folder.name]
