"""Points of a training run: the reports in a log of fairseq-train (``--log-format json``).

A report is JSON behind the name of its logger. Each number has the name of its split as a prefix; some are texts:

    2026-01-01 | INFO | train_inner | {"epoch": 1, "update": 0.5, "loss": "9.1", "num_updates": "100", "wall": "30"}
    2026-01-01 | INFO | valid | {"epoch": 1, "valid_loss": "8.2", "valid_num_updates": "200"}

fairseq leaves to its reader: a log file holds a report several times; the clock (``wall``, in seconds) starts at 0
again when training is resumed, or stands still at 0, so that the seconds of the updates (``train_wall``) replace it; a
validation has neither a clock nor, in the middle of an epoch, a fraction of it.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ode_transformer.support.depth_log_names import PREFIX, SAMPLES
from ode_transformer.support.errors import UserError

_TRAINING_STARTS = re.compile(r"training on \d+ devices")  # logged once by each process, before its first update
UPDATES = "num_updates"

# Splits of a report: training since the last report, and training over an epoch
TRAIN, TRAIN_EPOCH = "train", "train-epoch"
_SPLITS = {"train_inner": TRAIN, "train": TRAIN_EPOCH}

# Fields of ``Point`` that not every report of training has, and their names in the log
_LOGGED = dict(nll_loss="nll_loss", gnorm="gnorm", learning_rate="lr", tokens_per_second="wps", tokens_per_update="wpb")


@dataclass(frozen=True)
class Point:
    """One report of a run.

    :param split: ``train``, ``train-epoch`` (means over an epoch) or the name of a validation set
    :param loss: loss of the training criterion, in bits
    :param minutes: running time of all processes that trained the run so far; None after the last clock
    :param nll_loss: negative log-likelihood in bits per token; None if the criterion reports none
    :param epochs: passes over the data so far, with their fraction; None if unknown
    :param gnorm: norm of the gradient by all parameters; None in a validation, like the next three
    :param tokens_per_second: target tokens, as those of an update
    :param operations: of the training so far; no log has them, see ``ode_transformer.lab.pages.runs``
    :param depth: numbers logged by layer, such as ``depth/encoder/1/gradient_norm``
    """

    split: str
    epoch: int
    updates: int
    loss: float
    minutes: float | None = None
    nll_loss: float | None = None
    epochs: float | None = None
    gnorm: float | None = None
    learning_rate: float | None = None
    tokens_per_second: float | None = None
    tokens_per_update: float | None = None
    operations: float | None = None
    depth: Mapping[str, float] = field(default_factory=dict)

    @property
    def bits(self) -> float:
        """The nll_loss; the loss without one."""
        return self.loss if self.nll_loss is None else self.nll_loss

    @property
    def perplexity(self) -> float:
        try:
            return float(2**self.bits)
        except OverflowError:
            return float("inf")


def log_path(path: Path) -> Path:
    """Return the log of a run's folder, or the path itself if it is no folder."""
    return path / "train.log" if path.is_dir() else path


def read_log(path: Path) -> list[Point]:
    """Return all reports of a run, sorted by split and update.

    Where a run was resumed from an older checkpoint, the reports between that checkpoint and the stop are left out.

    :raises UserError: there are no reports
    """
    # Only the numbers matter, so a sentence that is not UTF-8 is no reason to stop.
    with open(log_path(path), encoding="utf-8", errors="replace") as lines:
        points = points_of(lines)
    if not points:
        raise UserError(f"{path}: no reports in it: train with --log-format json and a smaller --log-interval")
    return points


def parse_report(line: str) -> tuple[str, dict[str, Any]] | None:
    """Return the split of a report and its numbers under their names without prefix; None for another line."""
    try:
        report = json.loads(line[line.index("{") :])
    except (RecursionError, ValueError):  # no brace, no JSON behind it, or JSON that is no report
        return None
    for key in report:
        if key.endswith(UPDATES):
            prefix = key.removesuffix(UPDATES)
            split = _SPLITS.get(prefix.removesuffix("_") or "train_inner", prefix.removesuffix("_"))
            return split, {key.removeprefix(prefix): value for key, value in report.items()} if prefix else report
    return None


class Sample(NamedTuple):
    """A sentence that a training translated at a validation (``--log-samples``)."""

    updates: int
    source: str
    reference: str
    output: str


def parse_samples(line: str) -> list[Sample]:
    """Return the sample translations in a line of a log."""
    if f'"{SAMPLES}"' not in line:
        return []
    try:
        logged = json.loads(line[line.index("{") :])
        return [Sample(logged["updates"], **texts) for texts in logged[SAMPLES]]
    except (KeyError, TypeError, ValueError):  # another process wrote into the same line
        return []


def read_samples(path: Path) -> list[Sample]:
    """Return the sample translations of a run, those of the last validation at each update."""
    samples: dict[tuple[int, str], Sample] = {}
    with open(log_path(path), encoding="utf-8", errors="replace") as log:
        for line in log:
            samples |= {(sample.updates, sample.source): sample for sample in parse_samples(line)}
    return [samples[key] for key in sorted(samples)]


def points_of(lines: Iterable[str]) -> list[Point]:
    """Return the points of the reports among the lines of a log."""
    points: dict[tuple[str, int], dict[str, Any]] = {}  # fields of each
    updates_of_epochs: dict[int, int] = {}  # when each was reported
    minutes_at, epochs_at = {0: 0.0}, {0: 0.0}  # by update
    process_start = minutes = 0.0  # running time when this process started, and now
    update_seconds = 0.0  # of the updates of this process
    resumed = False  # a process began to train since the previous report
    for line in lines:
        resumed = resumed or bool(_TRAINING_STARTS.search(line))
        if (report := parse_report(line)) is None:
            continue
        split, numbers = report
        updates = int(numbers[UPDATES])
        if resumed:
            resumed = False
            process_start, update_seconds = minutes, 0.0
            points = {key: point for key, point in points.items() if point["updates"] < updates}
            minutes_at = {at: value for at, value in minutes_at.items() if at < updates}
            epochs_at = {at: value for at, value in epochs_at.items() if at < updates}
        if split == TRAIN:
            update_seconds += float(numbers.get("train_wall") or 0)
        if "wall" in numbers:
            seconds = float(numbers["wall"]) or update_seconds
            minutes = minutes_at[updates] = process_start + seconds / 60
        if split == TRAIN_EPOCH:
            epoch = int(numbers["epoch"])
            epochs_at[updates] = _epochs_at_report(epochs_at, updates, epoch)
            if epoch in updates_of_epochs:  # resumed within an epoch, training reports that epoch again
                points.pop((TRAIN_EPOCH, updates_of_epochs[epoch]), None)
            updates_of_epochs[epoch] = updates
        elif numbers.get("update") is not None:
            epochs_at[updates] = float(numbers["update"])
        points[split, updates] = _fields(split, updates, numbers)
    order = sorted(points, key=lambda key: (not key[0].startswith(TRAIN), *key))
    updates_of_points = [updates for _, updates in order]
    times = zip(
        order, _interpolate(minutes_at, updates_of_points), _interpolate(epochs_at, updates_of_points), strict=True
    )
    return [Point(**points[key], minutes=minutes, epochs=epochs) for key, minutes, epochs in times]


def _epochs_at_report(epochs_at: dict[int, float], updates: int, epoch: int) -> float:
    """Return the passes over the data when an epoch is reported: ``epoch``, or fewer if training stopped within it.

    Their number then follows from the pace of the other reports in that epoch.

    :param epochs_at: passes by update, in the order of the reports
    """
    latest = takewhile(lambda report: report[1] >= epoch - 1, reversed(epochs_at.items()))
    reported = sorted(report for report in latest if report[0] <= updates)
    if len(reported) < 2:
        return epoch
    (first_update, first_epochs), (last_update, last_epochs) = reported[0], reported[-1]
    pace = (last_epochs - first_epochs) / (last_update - first_update)
    epochs = last_epochs + pace * (updates - last_update)
    return epoch if epochs > epoch - 0.01 else epochs  # fairseq rounds to a thousandth


def _fields(split: str, updates: int, numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a point by name, but for those that follow from all reports."""
    logged = _LOGGED if split.startswith(TRAIN) else {"nll_loss": "nll_loss"}
    optional = {field: float(numbers[name]) for field, name in logged.items() if numbers.get(name) is not None}
    # A report has null where no update since the last one was followed by layer.
    depth = {name: float(value) for name, value in numbers.items() if name.startswith(PREFIX) and value is not None}
    known = {"split": split, "epoch": int(numbers["epoch"]), "updates": updates, "loss": float(numbers["loss"])}
    return {**known, **optional, "depth": depth}


def _interpolate(values: Mapping[int, float], updates: Sequence[int]) -> list[float | None]:
    """Return the value at each update, linear between its neighbours; None after the last of them."""
    reported = sorted(values)
    interpolated = np.interp(updates, reported, [values[update] for update in reported], right=np.nan)
    return [None if np.isnan(value) else float(value) for value in interpolated]
