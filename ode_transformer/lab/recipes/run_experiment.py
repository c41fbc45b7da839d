"""Training and evaluation of an experiment: resumed where they stopped, and not repeated."""

import json
import re
import shutil
from collections.abc import Callable, Sequence
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
from ode_transformer.support import commands
from ode_transformer.support.console import ProgressMeter, print_progress
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import atomic_directory, file_digest, lock_directory, read_json, write_text
from ode_transformer.support.jobs import Jobs
from ode_transformer.support.provenance import provenance

PROVENANCE = "trained.json"  # software, machine and command of a training, in its folder
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
        averaged = "done average" in jobs.manifest.entries()
        if not jobs.begin("train", request, experiment.log if averaged else checkpoints):
            return
        with experiment.training_progress() as progress:
            training.train_or_resume(command, folder, digest, experiment.last_update(), progress, threads)
        if not training.has_checkpoints(checkpoints):
            raise UserError(f"{checkpoints}: no checkpoint; see {experiment.log}")
        on_gpu = experiment.machine.gpus > 0 and torch.cuda.is_available()
        origin = provenance(list(map(str, command)), on_gpu, commands.threads_to_set(threads))
        write_text(folder / PROVENANCE, json.dumps(origin, indent=1) + "\n")
        jobs.complete("train", request)


def is_trained(experiment: Experiment) -> bool:
    """Return whether the training is complete; its checkpoints may have been deleted since."""
    data = experiment.data.training_jobs()
    return Jobs(experiment.folder, data.digest).is_done("train", _train_request(experiment, data), experiment.log)


def _train_request(experiment: Experiment, data: Jobs) -> list[Any]:
    return [experiment.digest(data), experiment.train_options()["stop-time-hours"]]


def evaluate(experiment: Experiment) -> dict[str, Score]:
    """Average, decode and score, and return the scores by title; a dry run prints the commands.

    Completed jobs are skipped.

    :raises UserError: there are no checkpoints, or they belong to other data or flags
    """
    if experiment.options.dry_run:
        for command in experiment.evaluation_commands():
            commands.print_command(command)
        return {}
    jobs = Jobs(experiment.folder, experiment.data.prepared_jobs().digest)
    steps = _evaluation_steps(experiment)
    if not training.has_checkpoints(experiment.checkpoints) and not jobs.is_done(*steps[0][:3]):
        hint = "ode-transformer train makes it, with the same --arch and flags"
        raise UserError(f"{experiment.checkpoints}: no checkpoint; {hint}")
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
    with lock_directory(experiment.model_path.parent, "evaluating"):  # a training may go on beside it
        for file in experiment.data.model_files:
            shutil.copy(file, experiment.model_path.parent)
        for step in steps:
            jobs.run(*step)
        scores = _read_scores(experiment)
    print(commands.last_line(experiment.folder / "average.log"))
    print(*scores.values(), sep="\n")
    return scores


def existing_scores(experiment: Experiment) -> dict[str, Score] | None:
    """Return the scores by title if training and evaluation are complete; None otherwise. Nothing is run.

    :raises UserError: the data are not prepared, or for another recipe
    """
    jobs = Jobs(experiment.folder, experiment.data.prepared_jobs().digest)
    if not is_trained(experiment):
        if experiment.folder.exists():
            print(f"{experiment.folder}: left out, the training has not ended, or not with these data and flags")
        return None
    for name, request, result, _ in _evaluation_steps(experiment):
        if not jobs.is_done(name, request, result):
            print(f"{experiment.folder}: left out, trained but not evaluated as it is now ({name})")
            return None
        jobs.skip(name, request)
    return _read_scores(experiment)


def _evaluation_steps(experiment: Experiment) -> list[Step]:
    """Return the jobs of the evaluation: average, decode, score.

    Only a training that goes on changes the average: once it is made, the checkpoints can be deleted, and it as well.
    """
    recipe, log, splits = experiment.recipe, experiment.log, experiment.data.splits()
    splits = [split for split in recipe.sets if split in splits]

    def request_of(command: Command) -> list[str]:
        """Return a command without the words that depend on the machine, the folder of the data or our version."""
        relative = [str(word).replace(str(experiment.data.folder), "") for word in command]
        left_out = ("--cpu", "--fp16", "--bf16", str(commands.USER_DIR.get()), "checkpoint")
        return [word for word in relative if word not in left_out]

    request = [request_of(experiment.average_command()), recipe.average.compare, log.exists() and file_digest(log)]
    model = experiment.model_path if training.has_checkpoints(experiment.checkpoints) else log
    steps: list[Step] = [("average", request, model, partial(_write_model, experiment))]
    if first := experiment.first_sentences:
        write = partial(_write_first_sentences, experiment, splits, first)
        steps.append(("first sentences", FIRST_SENTENCES, first, write))
    for split in splits:
        decode, log = experiment.decode_command(split), experiment.decode_log(split)
        run = partial(experiment.run, decode, log, decoding_progress())
        steps.append((f"decode {split}", request_of(decode), log, run))
    score = {split: [request_of(experiment.score_command(entry, split)) for entry in recipe.score] for split in splits}
    request = [__version__, score, recipe.sets]
    return [*steps, ("score", request, experiment.scores_path, partial(_write_scores, experiment, splits))]


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
        experiment.run(experiment.average_command(chosen), log, append=True)
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
    with atomic_directory(output, replaces=True) as folder:
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
            if line.startswith("  "):  # progress
                print_progress(line.rstrip("\n"))

        commands.run(experiment.score_command(scoring, split), log, read, append=number > 0)
        measured = [Score(**json.loads(line)) for line in lines if line.startswith("{")]
        for name, score in zip(scoring.names, measured, strict=True):
            title = recipe.score_title(name, split)
            scores[title] = asdict(replace(score, metric=title))
    write_text(experiment.scores_path, json.dumps(scores, indent=1) + "\n")


def write_record(experiment: Experiment) -> None:
    """Write ``experiment.json``: the recipe with its commands and published results."""
    recipe, options = experiment.recipe, experiment.options
    published = published_results(recipe, options.variant, options.train_flags)
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
        "published": [result.model_dump(include={"table", "system", "scores"}) for result in published],
    }
    write_text(experiment.folder / "experiment.json", json.dumps(record, indent=1, default=str) + "\n")
