"""The runs of a report, read from their folders.

A run's folder is one of ``ode-transformer train`` and its relatives, or any folder with the log of fairseq-train:

    train.log                  reports of the training
    experiment.json            the recipe, its commands and published results, see ``recipes.run_experiment``
    trained.json               software, machine and commit of the training
    scores.json                scores of the test sets
    generate.SPLIT.log         decoded test sets
    model/model.pt             the averaged model; without it the best or the last checkpoint

A study's folder has ``study.json``, which names the folders of its runs.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ode_transformer.analysis.curves import LoggedRun
from ode_transformer.analysis.training_log import Point, log_path, read_log
from ode_transformer.metrics.metric import Score
from ode_transformer.models.model_from_options import SENTENCE_LENGTH
from ode_transformer.support.console import print_progress
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import read_json

STUDY_FILE, EXPERIMENT_FILE = "study.json", "experiment.json"
_CHECKPOINTS = ("model/model.pt", "checkpoints/checkpoint_best.pt", "checkpoints/checkpoint_last.pt")
_CHECKPOINTS_HERE = ("checkpoint_best.pt", "checkpoint_last.pt")
# Flags that tell no system from another.
_UNNAMED_FLAGS = {"--seed", "--log-depth-interval", "--log-interval"}
# A backward pass costs about twice the operations of the forward pass.
_PASSES = 3


@dataclass(frozen=True)
class ReportedRun:
    """A run, as far as its folder tells.

    :param name: name of its system; seeds of one system have one name
    :param experiment: content of ``experiment.json``
    :param origin: content of ``trained.json``
    :param scores: by title
    :param points: of its log; empty without a log
    """

    folder: Path
    name: str
    seed: int | None = None
    experiment: Mapping[str, Any] = field(default_factory=dict)
    origin: Mapping[str, Any] = field(default_factory=dict)
    scores: Mapping[str, Score] = field(default_factory=dict)
    points: Sequence[Point] = ()
    data_folder: Path | None = None

    @property
    def checkpoint(self) -> Path | None:
        """The model to measure; None if nothing was saved."""
        paths = [self.folder / name for name in (*_CHECKPOINTS, *_CHECKPOINTS_HERE)]
        return next((path for path in paths if path.is_file()), None)

    @property
    def data(self) -> Path | None:
        """Folder of the binarised data; None if it is not known."""
        folder = self.data_folder or self.folder.resolve().parent / "data-bin"
        return folder if folder.is_dir() else None

    @property
    def is_language_model(self) -> bool:
        """True for a language model."""
        return self.experiment.get("task") == "language_modeling"

    @cached_property
    def decode_logs(self) -> dict[str, Path]:
        """Logs of the decoded sets by split; test sets first."""
        logs = {path.name.split(".")[1]: path for path in sorted(self.folder.glob("generate.*.log"))}
        return dict(sorted(logs.items(), key=lambda item: (not item[0].startswith("test"), item[0])))

    @property
    def minutes(self) -> float | None:
        """Time of the training; None without a log."""
        return max((point.minutes for point in self.points if point.minutes is not None), default=None)

    @property
    def updates(self) -> int | None:
        """Updates of the training; None without a log."""
        return max((point.updates for point in self.points), default=None)

    def operations_per_update(self, sentence_operations: int) -> float | None:
        """Return the operations of an update's matrix products; None if the log has no number of tokens.

        :param sentence_operations: of a forward pass over ``SENTENCE_LENGTH`` tokens
        """
        tokens = [point.tokens_per_update for point in self.points if point.tokens_per_update]
        if not tokens:
            return None
        return _PASSES * sentence_operations / SENTENCE_LENGTH * sum(tokens) / len(tokens)

    def logged(self, sentence_operations: int | None) -> LoggedRun:
        """Return the run for plots; its points have their operations if those of a sentence are known."""
        each = None if sentence_operations is None else self.operations_per_update(sentence_operations)
        points = [replace(p, operations=None if each is None else each * p.updates) for p in self.points]
        return LoggedRun(self.name, self.folder, points)


def read_runs(
    paths: Sequence[Path], names: Sequence[str] | None, data: Path | None
) -> tuple[list[ReportedRun], dict[str, Any]]:
    """Read runs, or the runs of a study; return them and the content of the study's file.

    :param names: of the systems, one for each path
    :param data: folder of the binarised data, if it is not beside the runs
    :raises UserError: a folder is neither a run nor a study, or one of its files is broken
    """
    study: dict[str, Any] = {}
    if len(paths) == 1 and (paths[0] / STUDY_FILE).is_file():
        study = read_json(paths[0] / STUDY_FILE)
        entries = study.get("runs")
        if not _are_objects(entries, folder=str) or not _are_objects(study.get("tables", []), title=str, rows=list):
            raise UserError(f"{paths[0] / STUDY_FILE}: not a record of ode-transformer study")
        if any(
            not table["rows"] or {type(row) for row in table["rows"]} != {list} for table in study.get("tables", [])
        ):
            raise UserError(f"{paths[0] / STUDY_FILE}: a table without rows")
        if not entries:
            raise UserError(f"{paths[0]}: none of the study's runs is complete")
        # Two systems can be one run, as two layers are twice one layer; the first name stays.
        name_by_folder: dict[str, str] = {}
        for entry in entries:
            name_by_folder.setdefault(str(entry["folder"]), str(entry.get("name", entry["folder"])))
        names = names or list(name_by_folder.values())
        paths = [paths[0] / folder for folder in name_by_folder]
    if names is not None and len(names) != len(paths):
        raise UserError(f"--names: {len(names)} for {len(paths)} runs")
    runs = [read_folder(path) for path in paths]
    if repeated := [path for path in paths if paths.count(path) > 1]:
        raise UserError(f"{repeated[0]} is named twice")
    runs = [replace(run, name=name) for run, name in zip(runs, names or [r.name for r in runs], strict=True)]
    return [replace(run, data_folder=data) for run in runs], study


def read_folder(folder: Path) -> ReportedRun:
    """Read the folder of a run.

    :raises UserError: it is none, or one of its files is broken
    """
    if not folder.is_dir():
        raise UserError(f"{folder}: not the folder of a run")
    experiment, origin, scores = (
        read_json(path) if path.is_file() else {}
        for path in (folder / name for name in (EXPERIMENT_FILE, "trained.json", "scores.json"))
    )
    if not _is_experiment(experiment):
        raise UserError(f"{folder / EXPERIMENT_FILE}: not a record of ode-transformer train")
    run = ReportedRun(folder, "", experiment=experiment, origin=origin)
    if log_path(folder).exists():
        try:
            run = replace(run, points=read_log(folder))
        except UserError as error:
            if not scores and run.checkpoint is None:
                raise
            print_progress(f"no curves: {error}")
    elif not scores and run.checkpoint is None:
        raise UserError(f"{folder}: no run: neither train.log nor scores.json nor a checkpoint in it")
    try:
        scores = {title: Score(**entry) for title, entry in scores.items()}
        if not all(type(score.value) in (int, float) for score in scores.values()):
            raise TypeError("a value is no number")
    except TypeError as error:
        raise UserError(f"{folder / 'scores.json'}: not scores of ode-transformer evaluate") from error
    seed = _seed(folder, experiment, origin)
    return replace(run, name=_system_name(folder, experiment), seed=seed, scores=scores)


def _are_objects(value: object, **kinds: type) -> bool:
    """Return whether a value is a list of JSON objects with these keys, whose values have these types."""
    return isinstance(value, list) and all(
        isinstance(entry, dict) and all(isinstance(entry.get(key), kind) for key, kind in kinds.items())
        for entry in value
    )


def _is_experiment(content: Mapping[str, Any]) -> bool:
    """Return whether the parts of ``experiment.json`` that are read have the types that they are written with."""
    published, commands = content.get("published", []), content.get("commands", {})
    return (
        isinstance(commands, dict)
        and all(isinstance(command, list) for command in commands.values())
        and isinstance(content.get("train_flags", []), list)
        and _are_objects(content.get("scores", []), split=str, titles=list, command=list)
        and _are_objects(published, table=str, system=str, scores=dict)
        and all(isinstance(score, int | float) for entry in published for score in entry["scores"].values())
    )


def _system_name(folder: Path, experiment: Mapping[str, Any]) -> str:
    """Return the architecture with its flags, or the name of the folder; both without the seed."""
    if "arch" not in experiment:
        return re.sub(r"-seed-\d+", "", folder.resolve().name)
    named, skip = [], False
    for word in map(str, experiment.get("train_flags", ())):
        if word.startswith("--"):
            skip = word.partition("=")[0] in _UNNAMED_FLAGS
        if not skip:
            named.append(word)
    variant = [f"({experiment['variant']})"] if experiment.get("variant") else []
    size = ["(own size)"] if experiment.get("own_size") else []
    return " ".join([str(experiment["arch"]), *size, *variant, *named])


def _seed(folder: Path, experiment: Mapping[str, Any], origin: Mapping[str, Any]) -> int | None:
    command = train_command(experiment, origin) or [str(word) for word in experiment.get("train_flags", ())]
    # "--seed 3" or "--seed=3"
    words = [part for word in command for part in (word.split("=", 1) if word.startswith("--seed=") else [word])]
    seeds = [value for word, value in zip(words, words[1:], strict=False) if word == "--seed"]
    match = re.search(r"-seed-(\d+)", folder.resolve().name)
    text = seeds[-1] if seeds else match[1] if match else ""
    return int(text) if re.fullmatch(r"\d{1,10}", text) else None


def train_command(experiment: Mapping[str, Any], origin: Mapping[str, Any]) -> list[str]:
    """Return the words of the command that trained a run; none if they are not known."""
    # That of experiment.json is the last one that was planned, and evaluate plans one, too.
    with suppress(ValueError):
        if command := shlex.split(str(origin.get("command", ""))):
            return command
    return [str(word) for word in experiment.get("commands", {}).get("train") or ()]


def systems_of(runs: Sequence[ReportedRun]) -> dict[str, list[ReportedRun]]:
    """Return the runs of each system, in the order of their first runs."""
    systems: dict[str, list[ReportedRun]] = {}
    for run in runs:
        systems.setdefault(run.name, []).append(run)
    return systems
