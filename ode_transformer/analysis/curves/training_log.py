"""Points of a training run: the reports of fairseq-train with running time and position in epochs.

fairseq leaves to its reader: a log file holds a report several times; the clock (``wall``, in seconds) starts at 0
again when training is resumed, or stands still at 0, so that the seconds of the updates (``train_wall``) replace it; a
validation has neither a clock nor, in the middle of an epoch, a fraction of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ode_transformer.analysis.curves.reports import TRAIN, TRAIN_EPOCH, UPDATES, Report, event_reports, log_reports
from ode_transformer.support.depth_log_names import PREFIX
from ode_transformer.support.errors import UserError, shorten

MAX_COUNT = 2**53  # of updates or epochs
LARGEST_NUMBER = 1e40  # above all numbers of fp32, with room for sums in a plot


@dataclass(frozen=True)
class Point:
    """One report of a run.

    :param split: ``train``, ``train-epoch`` (means over an epoch) or the name of a validation set
    :param epoch: number of the epoch, from 1 on; None if unknown
    :param minutes: running time of all processes that trained the run so far; None after the last clock
    :param loss: loss of the training criterion, in bits
    :param nll_loss: negative log-likelihood in bits per token; None if the criterion reports none
    :param epochs: passes over the data so far, with their fraction; None if unknown
    :param gnorm: norm of the gradient by all parameters; None in a validation
    :param tokens_per_second: target tokens of training per second, likewise
    :param tokens_per_update: target tokens of an update, likewise
    :param operations: of the training so far; no log has them, see ``ode_transformer.pages.runs``
    :param depth: numbers logged by layer, such as ``depth/encoder/1/gradient_norm``
    """

    split: str
    epoch: int | None
    updates: int
    minutes: float | None
    loss: float
    nll_loss: float | None
    epochs: float | None = None
    gnorm: float | None = None
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
        """2^bits."""
        try:
            return float(2**self.bits)
        except OverflowError:
            return float("inf")


def read_run(path: Path) -> list[Point]:
    """Read a log, a folder of TensorBoard files, or a folder with ``train.log`` or ``tensorboard``.

    :raises UserError: the path has no reports
    """
    log = find_log(path) if path.is_dir() else path
    if log is None:
        raise UserError(f"{path}: neither train.log nor TensorBoard's files (train_inner/events.out.tfevents...) in it")
    return read_events(log) if log.is_dir() else read_log(log)


def find_log(folder: Path) -> Path | None:
    """Return the log of a run's folder: ``train.log``, or a folder of TensorBoard files; None if it has none."""
    if (log := folder / "train.log").is_file():
        return log
    return next((log for log in (folder / "tensorboard", folder) if any(log.glob("*/*tfevents*"))), None)


def read_log(path: Path) -> list[Point]:
    """Return all reports of a run, sorted by split and update.

    Where a run was resumed from an older checkpoint, the reports between that checkpoint and the stop are left out.

    :raises UserError: there are no reports, or a number in one is not a number
    """
    points = points_of(log_reports(path))
    if not points:
        raise UserError(f"{path}: no reports in it: train with --log-format json and a smaller --log-interval")
    return points


def read_events(folder: Path) -> list[Point]:
    """Return the same as :func:`read_log` from a folder of ``--tensorboard-logdir``; a cut file ends early.

    :raises UserError: there are no reports, or a file has records that no program writes
    """
    points = points_of(event_reports(folder))
    if not points:
        raise UserError(f"{folder}: no losses in its TensorBoard files")
    return points


def points_of(reports: Iterable[Report]) -> list[Point]:
    """Return the points of reports, which come in the order in which they were written.

    :raises UserError: a number is missing, not a number or out of range
    """
    points: dict[tuple[str, int], Point] = {}
    minutes_at, epochs_at = {0: 0.0}, {0: 0.0}  # by update
    process_start = minutes = 0.0  # running time when this process started, and now
    update_seconds = 0.0  # of the updates of this process
    overtaking = False  # the next report is the first of a new process
    for report in reports:
        split, numbers = report.split, report.numbers
        if report.resumed:
            process_start, update_seconds, overtaking = minutes, 0.0, True
        try:
            updates = _count(numbers[UPDATES])
            if overtaking:
                points = {key: point for key, point in points.items() if point.updates < updates}
                minutes_at = {at: value for at, value in minutes_at.items() if at < updates}
                epochs_at = {at: value for at, value in epochs_at.items() if at < updates}
                overtaking = False
            if split == TRAIN:
                update_seconds += _number(numbers.get("train_wall") or 0)
            if "wall" in numbers:
                seconds = _number(numbers["wall"]) or update_seconds
                minutes = minutes_at[updates] = process_start + seconds / 60
            if split == TRAIN_EPOCH and numbers["epoch"] is not None:
                epoch = _count(numbers["epoch"])
                epochs_at[updates] = _epochs_at_report(epochs_at, updates, epoch)
                # Resumed within an epoch, training reports that epoch again.
                points = {at: p for at, p in points.items() if at[0] != TRAIN_EPOCH or p.epoch != epoch}
            elif numbers.get("update") is not None:
                epochs_at[updates] = _number(numbers["update"])
            points[split, updates] = _point(split, updates, numbers)
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            raise UserError(f"{report.location}: broken report ({error})") from error
    updates_of_points = [point.updates for point in points.values()]
    minutes_of_points, epochs_of_points = (_interpolate(at, updates_of_points) for at in (minutes_at, epochs_at))
    timed_points = [
        replace(point, minutes=minutes, epochs=epochs)
        for point, minutes, epochs in zip(points.values(), minutes_of_points, epochs_of_points, strict=True)
    ]
    return sorted(timed_points, key=lambda point: (not point.split.startswith(TRAIN), point.split, point.updates))


def _epochs_at_report(epochs_at: Mapping[int, float], updates: int, epoch: int) -> float:
    """Return the passes over the data when an epoch is reported: ``epoch``, or fewer if training stopped within it.

    Their number then follows from the pace of the other reports in that epoch.
    """
    reported = sorted((at, epochs) for at, epochs in epochs_at.items() if epoch - 1 <= epochs and at <= updates)
    if len(reported) < 2:
        return epoch
    (first_update, first_epochs), (last_update, last_epochs) = reported[0], reported[-1]
    pace = (last_epochs - first_epochs) / (last_update - first_update)
    epochs = last_epochs + pace * (updates - last_update)
    return epoch if epochs > epoch - 0.01 else epochs  # fairseq rounds to a thousandth


def _point(split: str, updates: int, numbers: Mapping[str, Any]) -> Point:
    def optional(name: str) -> float | None:
        return None if numbers.get(name) is None else _number(numbers[name])

    return Point(
        split=split,
        epoch=None if numbers["epoch"] is None else _count(numbers["epoch"]),
        updates=updates,
        minutes=None,
        loss=_number(numbers["loss"]),
        nll_loss=optional("nll_loss"),
        gnorm=optional("gnorm"),
        tokens_per_second=optional("wps") if split.startswith(TRAIN) else None,
        tokens_per_update=optional("wpb") if split.startswith(TRAIN) else None,
        # A report has null where no update since the last one was followed by layer.
        depth={
            name: _number(value) for name, value in numbers.items() if name.startswith(PREFIX) and value is not None
        },
    )


def _count(value: Any) -> int:
    """Return a number of updates or epochs.

    :raises ValueError: it is negative, beyond ``MAX_COUNT`` or no whole number
    """
    count = int(value)
    if not 0 <= count <= MAX_COUNT:
        raise ValueError(f"{shorten(str(count), 30)} is out of range")
    return count


def _number(value: Any) -> float:
    """Return a number of a report, which can be infinite or not a number.

    :raises ValueError: it is finite, but beyond ``LARGEST_NUMBER``
    """
    number = float(value)
    if LARGEST_NUMBER < abs(number) < math.inf:
        raise ValueError(f"{number:.4g} is out of range")
    return number


def _interpolate(values: Mapping[int, float], updates: Sequence[int]) -> list[float | None]:
    """Return the value at each update, linear between its neighbours; None after the last of them."""
    known = sorted(values)
    interpolated = np.interp(updates, known, [values[update] for update in known], right=np.nan)
    return [None if np.isnan(value) else float(value) for value in interpolated]
