"""Training and evaluation of an experiment: resumed where they stopped, and not repeated."""

import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch

from ode_transformer import __version__
from ode_transformer.checkpoints.reading import load_checkpoint, saved_updates
from ode_transformer.lab.analysis.training_log import read_log
from ode_transformer.lab.metrics.metric import Score
from ode_transformer.lab.recipes import training
from ode_transformer.lab.recipes.experiment import FIRST_SENTENCES, SHORT_RUN, Command, Experiment
from ode_transformer.lab.recipes.published import published_results
from ode_transformer.lab.recipes.recipe import Average
from ode_transformer.support import commands
from ode_transformer.support.console import ProgressMeter, repeat_progress
from ode_transformer.support.files import atomic_directory, lock_directory, read_json, write_text
from ode_transformer.support.jobs import Jobs, Manifest
from ode_transformer.support.provenance import provenance

Step = tuple[str, Any, Path, Callable[[], None]]  # a job of the evaluation: name, request, result and work


def train(experiment: Experiment) -> None:
    """Train with a line of progress, or resume a stopped training; a dry run prints the command.

    :raises UserError: the data were prepared for another recipe; the folder has checkpoints of another training, or
        none in the end
    """
    command, folder, checkpoints = experiment.train_command(), experiment.folder, experiment.checkpoints
    if experiment.options.dry_run:
        print(experiment.description)
        if experiment.options.sources:
            print(experiment.train_sources())
        commands.print_command(command, experiment.log)
        return
    data, rank, threads = experiment.data.training_jobs(), experiment.machine.rank, experiment.recipe.threads
    folder.mkdir(parents=True, exist_ok=True)
    if rank > 0:  # only the first machine writes checkpoints and records
        print(experiment.description, flush=True)
        with experiment.training_progress() as progress:
            commands.run(command, folder / f"train.node{rank}.log", progress)
        return
    jobs, digest, request = Jobs(folder, data.digest), experiment.digest(data), _train_request(experiment, data)
    with lock_directory(folder, "training"):
        if training.has_checkpoints(checkpoints):
            training.require_same_training(folder, digest)
        print(experiment.description, flush=True)
        write_record(experiment)
        # Once they are averaged, checkpoints can be deleted.
        averaged = "averaged" in Manifest(folder).entries()
        if not jobs.begin("train", request, experiment.log if averaged else checkpoints):
            return
        with experiment.training_progress() as progress:
            training.train_or_resume(command, folder, digest, experiment.last_update(), progress, threads)
        training.require_checkpoints(checkpoints, f"see {experiment.log}")
        on_gpu = experiment.machine.gpus > 0 and torch.cuda.is_available()
        origin = provenance(list(map(str, command)), on_gpu, commands.threads_to_set(threads))
        write_text(experiment.provenance_path, json.dumps(origin, indent=1) + "\n")
        jobs.complete("train", request)


def is_trained(experiment: Experiment) -> bool:
    """Return whether the training is complete; its checkpoints may have been deleted since.

    :raises UserError: the data are not prepared, or for another recipe
    """
    data = experiment.data.training_jobs()
    return Jobs(experiment.folder, data.digest).is_done("train", _train_request(experiment, data), experiment.log)


def _train_request(experiment: Experiment, data: Jobs) -> list[Any]:
    return [experiment.digest(data), experiment.train_options()["stop-time-hours"]]


def evaluate(experiment: Experiment) -> dict[str, Score]:
    """Average, decode and score; return the scores by title. Completed jobs are skipped.

    Once they are averaged, checkpoints can be deleted: only new ones change the average.

    :raises UserError: there are no checkpoints, or they belong to other data or flags
    """
    checkpoints = experiment.checkpoints
    averaged = _averaged_before(experiment)
    if not averaged:
        training.require_checkpoints(checkpoints, "ode-transformer train makes it, with the same --arch and flags")
    data = experiment.data.prepared_jobs()
    training.require_same_training(experiment.folder, experiment.digest(experiment.data.training_jobs()))
    write_record(experiment)
    for split, name in experiment.recipe.sets.items():
        if split not in experiment.data.splits():
            print(f"{name}: left out, the data have no {split} split")
    if experiment.first_sentences:
        print(
            f"short run: at most the first {FIRST_SENTENCES} sentences of each set are scored; "
            f"all are from --minutes {SHORT_RUN:g} on"
        )
    jobs = Jobs(experiment.folder, data.digest)
    with lock_directory(experiment.model_path.parent, "evaluating"):  # a training may go on beside it
        for file in experiment.data.model_files:
            shutil.copy(file, experiment.model_path.parent)
        for name, request, result, run_job in _evaluation_steps(experiment, averaged):
            jobs.run(name, request, result, run_job)
            if name == "average":
                average = experiment.recipe.average.model_dump(exclude_defaults=True)
                jobs.manifest.record(averaged={"average": average, "request": request})
        scores = _read_scores(experiment)
    print(commands.last_line(experiment.folder / "average.log"))
    for score in scores.values():
        print(score)
    return scores


def existing_scores(experiment: Experiment) -> dict[str, Score] | None:
    """Return the scores by title if training and evaluation are complete; None otherwise. Nothing is run.

    :raises UserError: the data are not prepared, or for another recipe
    """
    data = experiment.data.prepared_jobs()
    if not is_trained(experiment):
        if experiment.folder.exists():
            print(f"{experiment.folder}: left out, the training has not ended, or not with these data and flags")
        return None
    jobs, averaged = Jobs(experiment.folder, data.digest), _averaged_before(experiment)
    if not training.has_checkpoints(experiment.checkpoints) and not averaged:
        print(f"{experiment.folder}: left out, its checkpoints were deleted before they were averaged")
        return None
    for name, request, result, _ in _evaluation_steps(experiment, averaged):
        if not jobs.is_done(name, request, result):
            print(f"{experiment.folder}: left out, trained but not evaluated as it is now ({name})")
            return None
        jobs.skip(name, request)
    return _read_scores(experiment)


def _evaluation_steps(experiment: Experiment, averaged: list[Any] | None) -> Iterator[Step]:
    """Yield the jobs of the evaluation.

    :param averaged: request of the last average, if it is to be kept
    """
    recipe, splits = experiment.recipe, experiment.data.splits()
    splits = [split for split in recipe.sets if split in splits]

    def request_of(command: Command) -> list[str]:
        """Return a command without the words that depend on the machine, the folder of the data or our version."""
        relative = [str(word).replace(str(experiment.data.folder), "") for word in command]
        left_out = ("--cpu", "--fp16", "--bf16", str(commands.USER_DIR.get()), "checkpoint")
        return [word for word in relative if word not in left_out]

    if averaged:
        yield "average", averaged, experiment.log, lambda: None
    else:
        compared = ["compared"] if recipe.average.compare else []
        request = [[*request_of(experiment.average_command()), *compared], _checkpoint_files(experiment)]
        yield "average", request, experiment.model_path, partial(_write_model, experiment)
    if first := experiment.first_sentences:
        yield "first sentences", FIRST_SENTENCES, first, partial(_write_first_sentences, experiment, splits, first)
    for split in splits:
        decode, log = experiment.decode_command(split), experiment.decode_log(split)
        yield f"decode {split}", request_of(decode), log, partial(experiment.run, decode, log, decoding_progress())
    score = {split: [request_of(experiment.score_command(entry, split)) for entry in recipe.score] for split in splits}
    request = [__version__, score, recipe.sets]
    yield "score", request, experiment.scores_path, partial(_write_scores, experiment, splits)


def _write_model(experiment: Experiment) -> None:
    """Write the recipe's average, or the last or the best checkpoint if the recipe compares them and it is better."""
    log = experiment.folder / "average.log"
    experiment.run(experiment.average_command(), log)
    if not experiment.recipe.average.compare:
        return
    validation = experiment.folder / "validate.log"
    experiment.run(experiment.validation_command(), validation)
    validated = {point.updates: point.loss for point in read_log(experiment.log) if point.split == "valid"}
    texts = {"average": commands.last_line(log).partition(": ")[2]}
    report, *_ = validation.read_text(encoding="utf-8").rpartition(" | valid | ")[2].splitlines()
    losses = {"average": float(json.loads(report)["valid_loss"])}
    for name in ("last", "best"):
        path = experiment.checkpoints / f"checkpoint_{name}.pt"
        updates = saved_updates(load_checkpoint(path)) if path.exists() else None
        text = f"{name}, update {updates}"
        if updates in validated and text != texts["average"]:
            texts[name], losses[name] = text, validated.pop(updates)
    chosen = min(losses, key=lambda name: losses[name])
    if chosen != "average":
        experiment.run(experiment.checkpoint_command(chosen), log, append=True)
    with open(log, "a", encoding="utf-8") as file:
        rejected = "; ".join(f"{texts[name]}: {loss:.3f}" for name, loss in losses.items() if name != chosen)
        file.write(f"{experiment.model_path}: {texts[chosen]} (validation loss {losses[chosen]:.3f}; {rejected})\n")


def decoding_progress() -> Callable[[str], None]:
    """Return a function that reads fairseq-generate's log line by line and prints the progress."""
    meter = ProgressMeter("batches decoded")

    def read(line: str) -> None:
        if match := re.search(r":\s+(\d+) / (\d+) wps=", line):
            meter.total = int(match[2])
            meter.update(int(match[1]))

    return read


def _write_first_sentences(experiment: Experiment, splits: Sequence[str], output: Path) -> None:
    """Write the first sentences of some splits as text that fairseq reads, with dictionaries, and their references."""
    data, sides = experiment.data, "-".join(experiment.data.languages)
    with atomic_directory(output) as folder:
        for file in data.binary.glob("dict*.txt"):
            shutil.copy(file, folder)
        for split in splits:
            texts = {folder / f"{split}.{sides}.{side}": data.text / f"{split}.{side}" for side in data.languages}
            names = {name for scoring in experiment.recipe.score for name in experiment.references(scoring, split)}
            texts |= {folder / name: data.corpus / name for name in names}
            for copy, text in texts.items():
                end = "\n\n" if text.suffix == ".m2" else "\n"
                sentences = text.read_text(encoding="utf-8").removesuffix(end).split(end)[:FIRST_SENTENCES]
                copy.write_text("".join(f"{sentence}{end}" for sentence in sentences), encoding="utf-8")


def _averaged_before(experiment: Experiment) -> list[Any] | None:
    """Return the request of the last average, if checkpoints of it have been deleted since and no others saved."""
    record = Manifest(experiment.folder).entries().get("averaged")
    if record is None or Average(**record["average"]) != experiment.recipe.average:
        return None
    (_, averaged), files = record["request"], _checkpoint_files(experiment)
    return record["request"] if len(files) < len(averaged) and all(file in averaged for file in files) else None


def _checkpoint_files(experiment: Experiment) -> list[list[Any]]:
    """Return names and times of the checkpoints."""
    return [[path.name, path.stat().st_mtime_ns] for path in sorted(experiment.checkpoints.glob("*.pt"))]


def _read_scores(experiment: Experiment) -> dict[str, Score]:
    return {title: Score(**entry) for title, entry in read_json(experiment.scores_path).items()}


def _write_scores(experiment: Experiment, splits: Sequence[str]) -> None:
    """Score the decoded sets and write the recipe's scores by title."""
    recipe, scores = experiment.recipe, {}
    for split, (number, scoring) in product(splits, enumerate(recipe.score)):
        lines: list[str] = []
        log = experiment.folder / f"score-{split}.log"

        def read(line: str, lines: list[str] = lines) -> None:
            lines.append(line)
            repeat_progress(line)

        commands.run(experiment.score_command(scoring, split), log, read, append=number > 0)
        measured = [Score(**json.loads(line)) for line in lines if line.startswith("{")]
        for name, score in zip(scoring.names, measured, strict=True):
            title = recipe.score_title(name, split)
            scores[title] = asdict(replace(score, metric=title))
    write_text(experiment.scores_path, json.dumps(scores, indent=1) + "\n")


def write_record(experiment: Experiment) -> None:
    """Write ``experiment.json``: the recipe with its commands and published results."""
    recipe, options = experiment.recipe, experiment.options
    record = {
        **{"recipe": recipe.title, "corpus": recipe.corpus.kind, "task": recipe.task, "arch": recipe.arch},
        **{"variant": options.variant, "train_flags": options.train_flags},
        "commands": {
            "train": experiment.train_command(),
            **{f"decode {name}": experiment.decode_command(split) for split, name in recipe.sets.items()},
        },
        "scores": [
            {
                **{"split": split, "titles": [recipe.score_title(name, split) for name in scoring.names]},
                "command": experiment.score_command(scoring, split),
            }
            for split in recipe.sets
            for scoring in recipe.score
        ],
        "published": [
            {"table": result.table, "system": result.system, "scores": result.scores}
            for result in published_results(recipe, options.variant, options.train_flags)
        ],
    }
    write_text(experiment.folder / "experiment.json", json.dumps(record, indent=1, default=str) + "\n")
