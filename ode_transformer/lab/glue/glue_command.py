"""``ode-transformer analyse glue``: fine-tune a pre-trained encoder on the GLUE tasks, and write submission files.

Every combination of the grid of ``configs/glue.yaml`` is trained; the best on a development set predicts its test set.
"""

import itertools
import json
import shutil
import statistics
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ode_transformer.lab.glue import finetuning
from ode_transformer.lab.glue.finetuning import PreparedTask, prepare_task
from ode_transformer.lab.glue.tasks import TASKS, GlueConfig, find_tables, read_table
from ode_transformer.lab.recipes import training, workflow
from ode_transformer.lab.recipes.options import RunOptions
from ode_transformer.lab.recipes.recipe import Recipe
from ode_transformer.support import commands
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import file_stamp, lock_directory, read_json, write_files, write_text
from ode_transformer.support.jobs import Jobs
from ode_transformer.support.tables import markdown_table
from ode_transformer.support.yaml_file import read_yaml

WNLI = 65.1  # accuracy of the more frequent answer; the published average counts the task that is left out
STS_RANGE = (0.0, 5.0)  # of the scores of STS-B
NAME = "glue"  # for reproduce, as if it were a recipe


@dataclass(frozen=True)
class GridRun:
    """One fine-tuning of a task.

    :param request: everything that its results depend on
    """

    folder: Path
    command: list[Any]
    request: list[Any]


BestRun = tuple[Path, dict[str, Any]]  # its folder, and its results for a split: ``dev`` and ``test``


def plan_runs(
    prepared: PreparedTask,
    output: Path,
    model: Path,
    options: Mapping[str, Any],
    config: GlueConfig,
    train_flags: Sequence[str] = (),
) -> list[GridRun]:
    """Return a task's runs, one for each combination of the grid; words of the user come last."""
    runs, name = [], prepared.task.name
    task_flags = {"task": "symmetric_sentence_prediction"} if name in config.symmetric else {}
    for values in itertools.product(*config.grid.values()):
        point = dict(zip(config.grid, values, strict=True))
        folder = output / "runs" / name / ",".join(f"{key}={value}" for key, value in point.items())
        flags = finetuning.training_options(prepared, folder / "checkpoints", {**options, **task_flags, **point})
        command = ["fairseq-train", prepared.data, *commands.flags(flags), *train_flags]
        runs.append(GridRun(folder, command, [*map(str, command), *file_stamp(model), prepared.digest]))
    return runs


def train_grid(prepared: PreparedTask, runs: Sequence[GridRun]) -> dict[str, BestRun]:
    """Train and evaluate all runs, skipping complete ones; return the best run for each development split.

    The mean of a split's metrics ranks the runs; of equals, the first of the grid is the best. Of the complete runs
    only the best keep their checkpoints; an interrupted one keeps its own to resume from.
    """
    best: dict[str, tuple[float, BestRun]] = {}
    for number, run in enumerate(runs, start=1):
        for split, results in complete_run(prepared, run).items():
            score = statistics.mean(results["dev"].values())
            if split not in best or score > best[split][0]:
                best[split] = score, (run.folder, results)
        best_folders = {folder for _, (folder, _) in best.values()}
        for folder in {complete.folder for complete in runs[:number]} - best_folders:
            shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    return {split: best_run for split, (_, best_run) in best.items()}


def complete_run(prepared: PreparedTask, run: GridRun) -> dict[str, Any]:
    """Train a run and predict with its last checkpoint, unless that is done.

    :return: development split -> ``dev``, metrics by name, and ``test``, predictions
    """
    jobs, checkpoints, task = Jobs(run.folder), run.folder / "checkpoints", prepared.task
    path = run.folder / "results.json"

    def train_and_predict() -> None:
        digest = jobs.digest_of(run.request)
        if jobs.manifest.entries().get("training") != digest:
            shutil.rmtree(checkpoints, ignore_errors=True)  # a fine-tuning takes minutes: nobody wants the old one back
        training.train_or_resume(run.command, run.folder, digest)
        predictions = finetuning.predict(checkpoints / "checkpoint_last.pt", prepared.data, list(task.tables)[1:])
        results = {}
        for split in (split for split in task.tables if split.startswith("valid")):
            labels = [example.label for example in prepared.tables[split]]
            metrics = finetuning.evaluate(task.metrics, predictions[split], labels)
            results[split] = {"dev": metrics, "test": predictions[split.replace("valid", "test")]}
        write_text(path, json.dumps(results))

    with lock_directory(run.folder, "fine-tuning"):
        jobs.run("finetune", run.request, path, train_and_predict)
    results: dict[str, Any] = read_json(path)
    metrics = "; ".join(str(values["dev"]) for values in results.values())
    print(f"{task.name} {run.folder.name}: {metrics}", flush=True)
    return results


def write_submission(prepared: PreparedTask, split: str, best: BestRun, folder: Path) -> list[str]:
    """Write the test predictions of the best run for a development split; return its row of the table of results."""
    task, test, (run, results) = prepared.task, split.replace("valid", "test"), best
    name = task.submissions.get(test, task.name)
    if "nan" in results["test"]:
        return [name, "diverged", run.name]
    rows = ["index\tprediction"]
    for example, value in zip(prepared.tables[test], results["test"], strict=True):
        clipped = value if task.classes else f"{min(max(float(value), STS_RANGE[0]), STS_RANGE[1]):.3f}"
        rows.append(f"{example.index}\t{clipped}")
    write_files(folder, {f"{name}.tsv": "\n".join(rows) + "\n"}, f"{name}.tsv")
    return [name, ", ".join(f"{metric} {value:.2f}" for metric, value in results["dev"].items()), run.name]


def average(scores: Mapping[str, Sequence[float]]) -> float:
    """Return the GLUE average: the mean of nine tasks, of which MNLI has two sets and others have two metrics.

    :param scores: metrics in per cent of each submitted file but WNLI's
    """
    tasks: dict[str, list[float]] = {}
    for name, values in scores.items():
        tasks.setdefault(name.removesuffix("-mm").removesuffix("-m"), []).append(statistics.mean(values))
    return statistics.mean([*map(statistics.mean, tasks.values()), WNLI])


def fine_tune(args: Namespace, config: GlueConfig) -> None:
    """Prepare the tasks and train all their runs; write the best predictions and a table of the best runs."""
    names, output, pieces = args.tasks, args.output, args.data or args.path.parent
    if chosen := [word for word in args.train_flags if word.partition("=")[0].removeprefix("--") in config.grid]:
        raise UserError(f"{chosen[0]} after --: the grid of --config sets it for each run")
    options = finetuning.model_options(args.path) | config.train | {"finetune-from-model": args.path.resolve()}
    plans = {}
    for task in (task for name, task in TASKS.items() if name in names):
        folder = find_tables(task, args.raw, output / "raw", args.dry_run)
        tables = {split: read_table(task, folder, split) for split in task.tables}
        prepared = prepare_task(task, tables, pieces, output, args.dry_run)
        plans[task.name] = prepared, plan_runs(prepared, output, args.path, options, config, args.train_flags)
    if args.dry_run:
        for run in itertools.chain.from_iterable(runs for _, runs in plans.values()):
            commands.print_command(run.command)
        return
    published = [entry for entry in config.expected if entry.arch == options["arch"]]
    rows, scores = [], {}
    for prepared, runs in plans.values():
        for split, best in train_grid(prepared, runs).items():
            row = write_submission(prepared, split, best, output / "submission")
            scores[row[0]] = list(best[1]["dev"].values())
            rows.append([*row, *(", ".join(f"{x:.1f}" for x in entry.scores.get(row[0], [])) for entry in published)])
    if len(plans) == len(TASKS):
        averages = (f"{average(entry.scores):.1f}" for entry in published)
        rows.append(["average", f"{average(scores):.2f}", "", *averages])
    titles = ["task", "development set", "best run"]
    titles += [f"{entry.table}: {entry.system}, test set" for entry in published]
    text = markdown_table(titles, rows, "l" * len(titles)) + "\n"
    write_files(output, {"results.md": text}, "results.md")
    print(f"\n{text}\npredictions for the test sets: {output / 'submission'}")


def reproduce(config: GlueConfig, recipe: Recipe, options: RunOptions) -> None:
    """Pre-train by the recipe, then run ``ode-transformer analyse glue``, or print its command.

    :param options: of the user; flags of fairseq-train and the machine are those of pre-training
    """
    data = workflow.recipe_data(recipe, config.pretraining, options)
    experiments = workflow.plan_experiments(recipe, data, options)
    workflow.reproduce(experiments)
    for experiment in experiments:
        tables = options.raw if options.raw and any((options.raw / name).is_dir() for name in TASKS) else None
        flags: dict[str, Path | None] = {"path": experiment.model_path, "data": experiment.model_path.parent}
        flags |= {"raw": tables, "output": options.output / NAME / experiment.folder.name}
        if options.dry_run:
            commands.print_command(["ode-transformer", "analyse", NAME, *commands.flags(flags)])
            continue
        chosen = {**flags, "tasks": TASKS, "dry_run": False, "train_flags": ()}
        fine_tune(Namespace(**chosen), config)


def run(args: Namespace) -> None:
    """Fine-tune on the tasks that the command line names."""
    fine_tune(args, read_yaml(args.config, GlueConfig))
