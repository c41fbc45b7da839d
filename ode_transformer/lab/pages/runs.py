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

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from ode_transformer.decoding.operations import SENTENCE_LENGTH
from ode_transformer.lab.analysis.curves import LoggedRun
from ode_transformer.lab.analysis.training_log import Sample, log_path, read_log, read_samples
from ode_transformer.lab.metrics.metric import Score
from ode_transformer.support.console import print_progress
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import read_json

STUDY_FILE = "study.json"
FIRST = "first"  # folder of the sentences that a short run decodes, see ``Experiment.first_sentences``
_CHECKPOINTS = (
    *("model/model.pt", "checkpoints/checkpoint_best.pt", "checkpoints/checkpoint_last.pt"),
    *("checkpoint_best.pt", "checkpoint_last.pt"),
)
_UNNAMED_FLAGS = r"--(seed|log-depth-interval|log-interval)[= ]\S+"  # which tell no system from another
# A backward pass costs about twice the operations of the forward pass.
_PASSES = 3


@dataclass(frozen=True)
class ReportedRun(LoggedRun):
    """A run, as far as its folder ``path`` tells.

    :param experiment: content of ``experiment.json``
    :param origin: content of ``trained.json``
    :param samples: translations in its log
    """

    seed: int | None = None
    experiment: Mapping[str, Any] = field(default_factory=dict)
    origin: Mapping[str, Any] = field(default_factory=dict)
    scores: Mapping[str, Score] = field(default_factory=dict)
    samples: Sequence[Sample] = ()
    data_folder: Path | None = None

    @property
    def checkpoint(self) -> Path | None:
        """The model to measure; None if nothing was saved."""
        paths = [self.path / name for name in _CHECKPOINTS]
        return next((path for path in paths if path.is_file()), None)

    @property
    def data(self) -> Path | None:
        """Folder of the binarised data; None if it is not known."""
        folder = self.data_folder or self.path.resolve().parent / "data-bin"
        return folder if folder.is_dir() else None

    @property
    def corpus(self) -> Path:
        """Folder of the references: the text that the run's data were made from, or the first lines of it."""
        decoded = [words[1] for name, words in self.experiment.get("commands", {}).items() if name != "train"]
        if decoded and Path(decoded[0]).name == FIRST:
            return self.path / FIRST
        return self.path.resolve().parent / "corpus"

    @property
    def is_language_model(self) -> bool:
        return self.experiment.get("task") == "language_modeling"

    @cached_property
    def decode_logs(self) -> dict[str, Path]:
        """Logs of the decoded sets by split; test sets first."""
        logs = {path.name.split(".")[1]: path for path in sorted(self.path.glob("generate.*.log"))}
        return dict(sorted(logs.items(), key=lambda item: (not item[0].startswith("test"), item[0])))

    def total(self, field: str) -> float | None:
        """Return the updates, minutes or operations of the training; None if they are not known."""
        values = [getattr(point, field) for point in self.points]
        return max((value for value in values if value is not None), default=None)

    def with_operations(self, sentence_operations: int) -> "ReportedRun":
        """Return the run with the operations of all matrix products so far at each point of a log with token counts.

        :param sentence_operations: of a forward pass over ``SENTENCE_LENGTH`` tokens
        """
        tokens = [point.tokens_per_update for point in self.points if point.tokens_per_update]
        if not tokens:
            return self
        each = _PASSES * sentence_operations / SENTENCE_LENGTH * fmean(tokens)  # of an update
        return replace(self, points=[replace(point, operations=each * point.updates) for point in self.points])

    @property
    def warmup(self) -> int | None:
        """Updates of the warm-up; None if they are not known."""
        flag = re.search(r"--warmup-updates[= ](\d+)", " ".join(train_command(self.experiment, self.origin)))
        return int(flag[1]) if flag else None


Systems = Mapping[str, Sequence[ReportedRun]]  # runs of each system


def read_runs(
    systems: Sequence[tuple[str, Path]], data: Path | None = None
) -> tuple[list[ReportedRun], dict[str, Any]]:
    """Read runs, or the runs of a study; return them and the content of the study's file.

    :param systems: names, empty for those of the runs, and folders
    :param data: folder of the binarised data, if it is not beside the runs
    """
    study: dict[str, Any] = {}
    folder = systems[0][1]
    if len(systems) == 1 and (folder / STUDY_FILE).is_file():
        study = read_json(folder / STUDY_FILE)
        # Two systems can be one run, as two layers are twice one layer; the first name stays.
        name_by_folder: dict[str, str] = {}
        for entry in study["runs"]:
            name_by_folder.setdefault(entry["folder"], entry.get("name", entry["folder"]))
        if not name_by_folder:
            raise UserError(f"{folder}: none of the study's runs is complete")
        systems = [(name, folder / path) for path, name in name_by_folder.items()]
    runs = [(name, read_folder(path)) for name, path in systems]
    return [replace(run, name=name or run.name, data_folder=data) for name, run in runs], study


def read_folder(folder: Path) -> ReportedRun:
    experiment, origin, scores = (
        read_json(path) if path.is_file() else {}
        for path in (folder / name for name in ("experiment.json", "trained.json", "scores.json"))
    )
    command = train_command(experiment, origin) or experiment.get("train_flags", ())
    seeds = re.findall(r"--seed[= ](\d+)", " ".join(map(str, command)))
    seeds = seeds[-1:] or re.findall(r"-seed-(\d+)", folder.resolve().name)
    seed = int(seeds[0]) if seeds else None
    known_scores = {title: Score(**entry) for title, entry in scores.items()}
    run = ReportedRun(_system_name(folder, experiment), folder, (), seed, experiment, origin, known_scores)
    if not log_path(folder).is_file():
        if not (scores or run.checkpoint):
            raise UserError(f"{folder}: no run: neither train.log nor scores.json nor a checkpoint in it")
        return run
    try:
        return replace(run, points=read_log(folder), samples=read_samples(folder))
    except UserError as error:
        print_progress(f"no curves: {error}")
        return run


def _system_name(folder: Path, experiment: Mapping[str, Any]) -> str:
    """Return the architecture with its flags, or the name of the folder; both without the seed."""
    if "arch" not in experiment:
        return re.sub(r"-seed-\d+", "", folder.resolve().name)
    flags = re.sub(_UNNAMED_FLAGS, "", " ".join(map(str, experiment.get("train_flags", ()))))
    variant = f"({experiment['variant']})" if experiment.get("variant") else ""
    return " ".join(f"{experiment['arch']} {variant} {flags}".split())


def train_command(experiment: Mapping[str, Any], origin: Mapping[str, Any]) -> list[str]:
    """Return the words of the command that trained a run; none if they are not known."""
    # That of experiment.json is the last one that was planned, and evaluate plans one, too.
    recorded = shlex.split(origin.get("command", ""))
    return recorded or [str(word) for word in experiment.get("commands", {}).get("train") or ()]
