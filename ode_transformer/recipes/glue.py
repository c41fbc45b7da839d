"""GLUE: prepares the eight tasks, fine-tunes over the paper's grid, writes predictions as the server reads them.

bash scripts/glue.sh prepare --pretraining DIR [--raw DIR]
bash scripts/glue.sh finetune --model CHECKPOINT [--dry-run] [-- FLAGS OF fairseq-train]
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import statistics
import sys
import urllib.request
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from ode_transformer.errors import UserError
from ode_transformer.recipes import commands, finetuning, sentence_data
from ode_transformer.recipes.files import place
from ode_transformer.recipes.glue_tasks import TASKS, GlueTask, divide_mrpc, read_table, submission_text
from ode_transformer.recipes.pretraining_text import encoder
from ode_transformer.recipes.sentence_data import Labelled
from ode_transformer.recipes.steps import Steps
from ode_transformer.recipes.vocabulary import MODEL

CONFIG = finetuning.PACKAGE.parent / "configs" / "glue.yaml"


def download(task: GlueTask, raw: Path) -> None:
    """Fetches a task's files and leaves its tables in ``raw``.

    :raises UserError: names the address that cannot be read
    """
    folder = raw / task.name
    folder.mkdir(parents=True, exist_ok=True)
    for url in task.urls:
        path = folder / url.rpartition("/")[2]
        print(f"{url}", flush=True)
        try:
            with urllib.request.urlopen(url, timeout=60) as answer, open(path, "wb") as file:
                shutil.copyfileobj(answer, file)
            if path.suffix == ".zip":
                unpack(task, path)
        except (OSError, zipfile.BadZipFile) as error:
            raise UserError(f"{url}: {error}; --raw takes a folder with the tasks' folders") from error
    if task.name == "MRPC":
        divide_mrpc(folder)


def unpack(task: GlueTask, archive: Path) -> None:
    """Takes a task's tables out of an archive; everything else stays in it."""
    with zipfile.ZipFile(archive) as members:
        for member in members.namelist():
            place_of, _, name = member.rpartition("/")
            if name in task.tables.values() and place_of in ("", task.name):
                with members.open(member) as source, open(archive.parent / name, "wb") as file:
                    shutil.copyfileobj(source, file)


def prepare(names: Sequence[str], pretraining: Path, raw: Path | None, output: Path) -> None:
    """Tables → pieces of the pre-trained model → binary; what is done already is left out.

    :raises UserError: a file is missing or its contents are not the task's
    """
    dictionary, pieces = pretraining / "dict.txt", pretraining / MODEL
    if not dictionary.is_file():
        raise UserError(f"--pretraining {pretraining}: no dict.txt there")
    encode = encoder(pieces)
    for name in names:
        task, tables = TASKS[name], (raw or output / "raw") / name
        if raw is None:
            Steps(output / "raw")(
                f"download {name}", task.urls, tables, lambda task=task: download(task, output / "raw")
            )
        elif name == "MRPC" and not (tables / "train.tsv").exists() and (tables / "msr_paraphrase_train.txt").exists():
            divide_mrpc(tables)
        read = {split: read_table(task, tables, split) for split in task.tables}
        splits = {split: [Labelled(row.texts, row.label) for row in rows] for split, (rows, _) in read.items()}
        for split, (rows, broken) in read.items():
            print(f"{name} {split}: {len(rows):,} examples" + (f", {broken} broken rows left out" if broken else ""))

        def make(task: GlueTask = task, splits: dict = splits, read: dict = read) -> None:
            text, binary = output / "text" / task.name, output / "data-bin" / task.name
            sentence_data.binarise(splits, task.classes, encode, dictionary, text, binary)
            numbers = {split: [row.index for row in rows] for split, (rows, _) in read.items() if "test" in split}
            labels = {split: [row.label for row in rows] for split, (rows, _) in read.items() if "valid" in split}
            examples = {"train": len(splits["train"]), "labels": labels, "indices": numbers}
            place(binary, {"examples.json": json.dumps(examples)}, "examples.json")

        binary = output / "data-bin" / name
        made_from = [task, splits, dictionary.read_text(encoding="utf-8")]
        Steps(output / "text")(f"binarise {name}", made_from, binary / "examples.json", make)


def read_config(path: Path) -> dict[str, dict[str, Any]]:
    """The grid and the flags of every run.

    :raises UserError: names the file and what is wrong in it
    """
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"{path}: cannot be read as YAML: {error}") from error
    if not isinstance(config, dict) or set(config) != {"grid", "train"}:
        raise UserError(f"{path}: has to have 'grid' and 'train', and nothing else")
    for key in ("batch-size", "lr", "max-epoch", "seed"):
        values = config["grid"].get(key)
        if not isinstance(values, list) or not values or not all(isinstance(v, int | float) and v > 0 for v in values):
            raise UserError(f"{path}: grid: {key} has to be a list of numbers above 0, not {values!r}")
    return config


def grid_of(config: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Every combination of the grid's values."""
    grid = config["grid"]
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def finetune(
    names: Sequence[str],
    model: Path,
    output: Path,
    config: dict[str, dict[str, Any]],
    train_flags: Sequence[str],
    dry_run: bool,
) -> None:
    """Trains and compares all runs of each task; the best predict the test sets.

    A run that has its results already is left out; of its checkpoints only those that are best so far are kept.
    """
    runs, table = output / "runs", []
    options = finetuning.model_options(model)
    for name in names:
        task, data = TASKS[name], output / "data-bin" / name
        if not (data / "examples.json").exists():
            raise UserError(f"{data}: not prepared; first: bash scripts/glue.sh prepare --tasks {name}")
        finetuning.check_dictionary(model, data / "input0" / "dict.txt")
        examples = json.loads((data / "examples.json").read_text(encoding="utf-8"))
        best: dict[str, tuple[float, Path]] = {}
        for point in grid_of(config):
            run = runs / name / ",".join(f"{key}={value}" for key, value in point.items())
            chosen = options | config["train"] | point | {"finetune-from-model": model.resolve()}
            flags = finetuning.training_options(
                data, examples["train"], task.outputs, not task.classes, run / "checkpoints", chosen
            )
            command = ["fairseq-train", data, *commands.flags(flags), *train_flags]
            if dry_run:
                commands.show(command)
                continue
            results = one_run(task, data, run, command, examples, model)
            for split, values in results.items():
                score = statistics.mean(values["dev"].values())
                if split not in best or score > best[split][0]:
                    best[split] = (score, run)
            for loser in {path.parent for path in (runs / name).glob("*/checkpoints")} - {
                run for _, run in best.values()
            }:
                shutil.rmtree(loser / "checkpoints", ignore_errors=True)
        for split, (_, run) in best.items():
            values = json.loads((run / "results.json").read_text(encoding="utf-8"))[split]
            test = split.replace("valid", "test")
            rows = list(zip(examples["indices"][test], values["test"], strict=True))
            file = f"{task.submission(test)}.tsv"
            place(output / "submission", {file: submission_text(task, rows)}, file)
            scores = ", ".join(f"{metric} {value:.2f}" for metric, value in values["dev"].items())
            table.append(f"| {task.submission(test)} | {scores} | {run.name} |")
    if table:
        head = ["| task | development set | best run |", "|---|---|---|"]
        text = "\n".join([*head, *table]) + "\n"
        place(output, {"results.md": text}, "results.md")
        print(f"\n{text}\npredictions for the test sets: {output / 'submission'}")


def one_run(
    task: GlueTask, data: Path, run: Path, command: list[Any], examples: dict[str, Any], model: Path
) -> dict[str, Any]:
    """Trains unless that is done, predicts, and keeps development metrics and test predictions by split."""
    from ode_transformer.evaluation.glue_metrics import evaluate

    def make() -> None:
        # Interrupted, the same training goes on from its last checkpoint; another one begins anew.
        begun = run / "train.begun"
        request = steps.digest_of(asked)
        resume = begun.exists() and begun.read_text() == request
        if not resume:
            shutil.rmtree(run / "checkpoints", ignore_errors=True)
        place(run, {begun.name: request}, begun.name)
        commands.run(command, run / "train.log", append=resume)
        said = finetuning.predict(run / "checkpoints" / "checkpoint_last.pt", data, list(task.tables)[1:])
        results = {}
        for split, labels in examples["labels"].items():
            values = said[split] if task.classes else [float(value) for value in said[split]]
            truth = labels if task.classes else [float(label) for label in labels]
            results[split] = {
                "dev": evaluate(task.metrics, values, truth),
                "test": said[split.replace("valid", "test")],
            }
        place(run, {"results.json": json.dumps(results)}, "results.json")

    run.mkdir(parents=True, exist_ok=True)
    steps = Steps(run)
    asked = [*map(str, command), model.stat().st_size, model.stat().st_mtime_ns, examples["train"]]
    steps("finetune", asked, run / "results.json", make)
    results: dict[str, Any] = json.loads((run / "results.json").read_text(encoding="utf-8"))
    print(f"{task.name} {run.name}: " + "; ".join(str(values["dev"]) for values in results.values()), flush=True)
    return results


def parse(argv: Sequence[str]) -> argparse.Namespace:
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
    own, extra = list(argv), []
    if "--" in own:
        own, extra = own[: own.index("--")], own[own.index("--") + 1 :]
    args = parser.parse_args(own)
    args.train_flags = extra
    args.tasks = args.tasks.split(",")
    if unknown := [name for name in args.tasks if name not in TASKS]:
        raise UserError(f"--tasks {unknown[0]}: unknown; known are {', '.join(TASKS)}")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    try:
        args = parse(sys.argv[1:] if argv is None else argv)
        if args.step == "prepare":
            prepare(args.tasks, args.pretraining, args.raw, args.output)
        else:
            finetune(args.tasks, args.model, args.output, read_config(args.config), args.train_flags, args.dry_run)
    except (UserError, OSError) as error:
        print(f"glue: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("glue: interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
