"""What fairseq-train reported of a run: its JSON log, or the TensorBoard files of ``--tensorboard-logdir``.

Train with ``--log-format json``; the log is ``--log-file`` or the captured output. A report is a JSON
object at the end of a line: ``{"epoch": 2, "loss": "4.46", "num_updates": "50", "wall": "31", ...}`` since
the previous report, the same with keys ``train_loss`` ... over an epoch, and ``valid_loss`` ... for a
validation set called ``valid``. Losses are in bits. TensorBoard has the same reports under ``train_inner``,
``train`` and ``valid``, without the number of the epoch.

What fairseq leaves to its reader: a log file holds a report several times; the clock ("wall", in seconds)
starts at 0 again when training is resumed; a validation has neither a clock nor, in the middle of an epoch,
a fraction of it.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from ode_transformer.support.errors import UserError

_START = re.compile(r"training on \d+ devices")  # fairseq-train says this once, before its first update
_UPDATES = "num_updates"
DEPTH = "depth/"  # what --log-depth-interval adds: PREFIX of modules.depth_log, which takes fairseq to import

# Splits of a Point: what fairseq reports of the training since the last report, and of an epoch of it
TRAIN, TRAIN_EPOCH = "train", "train-epoch"
_SPLITS = {"train_inner": TRAIN, "train": TRAIN_EPOCH}


@dataclass(frozen=True)
class Point:
    """One report of a run.

    :param split: ``train``, ``train-epoch`` (means over an epoch) or the name of a validation set
    :param epoch: its number, from 1 on; None where unknown
    :param minutes: running time of all processes that trained the run up to here; None after the last clock
    :param loss: of the training criterion, in bits
    :param nll_loss: negative log-likelihood in bits per token; None if the criterion reports none
    :param epochs: how many passes over the data up to here, with their fraction; None where unknown
    :param gnorm: length of the gradient by all parameters; None in a validation
    :param depth: what was logged by layer, such as ``depth/encoder/1/gradient_norm``
    """

    split: str
    epoch: int | None
    updates: int
    minutes: float | None
    loss: float
    nll_loss: float | None
    epochs: float | None = None
    gnorm: float | None = None
    depth: Mapping[str, float] = field(default_factory=dict)

    @property
    def perplexity(self) -> float:
        """2^nll_loss; of the loss itself where there is no nll_loss."""
        try:
            return float(2 ** (self.loss if self.nll_loss is None else self.nll_loss))
        except OverflowError:
            return float("inf")


@dataclass(frozen=True)
class _Report:
    """Numbers of one report under their names in the log, without prefix.

    :param place: of the report, for an error
    :param started: a process began to train since the report before
    """

    place: str
    split: str
    numbers: Mapping[str, Any]
    started: bool


def read_run(path: Path) -> list[Point]:
    """The points of a log, of a folder of TensorBoard files, or of a folder with ``train.log`` or ``tensorboard``.

    :raises UserError: there are none
    """
    if not path.is_dir():
        return read_log(path)
    if (path / "train.log").is_file():
        return read_log(path / "train.log")
    for folder in (path / "tensorboard", path):
        if any(folder.glob("*/*tfevents*")):
            return read_events(folder)
    raise UserError(f"{path}: neither train.log nor TensorBoard's files (train_inner/events.out.tfevents...) in it")


def read_log(path: Path) -> list[Point]:
    """All reports of one run, by split and rising update.

    Where a run was resumed from an older checkpoint, the reports that it then overtook are left out.

    :raises UserError: there are none, or a number in one is not a number
    """
    points = _points(_reports_of_log(path))
    if not points:
        raise UserError(f"{path}: no reports in it: train with --log-format json and a smaller --log-interval")
    return points


def read_events(folder: Path) -> list[Point]:
    """As :func:`read_log`, from a folder of ``--tensorboard-logdir``; a file is read up to where it is damaged.

    :raises UserError: there are none
    """
    points = _points(_reports_of_events(folder))
    if not points:
        raise UserError(f"{folder}: no losses in its TensorBoard files")
    return points


def _reports_of_log(path: Path) -> Iterator[_Report]:
    started = False
    # Only the numbers matter, so bytes of a sentence that are no UTF-8 are no reason to stop.
    with open(path, encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            started = started or bool(_START.search(line))
            prefix, report = _report(line)
            if report:
                numbers = {key.removeprefix(prefix): value for key, value in report.items()}
                split = _SPLITS.get(prefix.removesuffix("_") or "train_inner", prefix.removesuffix("_"))
                yield _Report(f"{path}: line {number}", split, numbers, started)
                started = False


def _report(line: str) -> tuple[str, dict[str, Any]]:
    """The report in a line and the prefix of its keys; an empty report for any other line."""
    try:
        report = json.loads(line[line.index("{") :])
    except (RecursionError, ValueError):  # no brace, or no JSON behind it, or JSON that no report looks like
        return "", {}
    for key in report:
        if key.endswith(_UPDATES):
            return key.removesuffix(_UPDATES), report
    return "", {}


def _reports_of_events(folder: Path) -> Iterator[_Report]:
    """In the order in which they were written: each process has its own files."""
    from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator  # takes a second

    found: list[tuple[float, str, str, dict[str, Any]]] = []
    for file in sorted(folder.glob("*/*tfevents*")):
        events = EventAccumulator(str(file), size_guidance={SCALARS: 0}, purge_orphaned_data=False).Reload()
        reports: dict[int, dict[str, Any]] = defaultdict(dict)
        times: dict[int, float] = {}
        for tag in events.Tags()["scalars"]:
            for event in events.Scalars(tag):
                reports[event.step][tag] = event.value
                times[event.step] = min(event.wall_time, times.get(event.step, event.wall_time))
        split = _SPLITS.get(file.parent.name, file.parent.name)
        found += [(times[step], split, str(file), {**report, _UPDATES: step}) for step, report in reports.items()]
    clock, reports_in_order = 0.0, []
    for _, split, place, numbers in sorted(found, key=lambda report: report[0]):
        if "loss" in numbers:  # otherwise it is of another writer in the same folder
            reports_in_order.append(_Report(place, split, numbers, numbers.get("wall", clock) < clock))
            clock = numbers.get("wall", clock)
    length = _updates_of_an_epoch(reports_in_order)
    for report in reports_in_order:
        passes = report.numbers[_UPDATES] / length if length else None
        more = {"epoch": None} if passes is None else {"epoch": math.ceil(passes), "update": passes}
        yield replace(report, numbers={**report.numbers, **more})


def _updates_of_an_epoch(reports: Sequence[_Report]) -> int | None:
    """From where training reported an epoch and went on; stopping, it reports the part of one, too."""
    ends = [n for n, report in enumerate(reports) if report.split == TRAIN_EPOCH]
    if not any(reports[n + 1 :] and not any(r.started for r in reports[n + 1 : n + 3]) for n in ends):
        return None
    updates = sorted({0, *(reports[n].numbers[_UPDATES] for n in ends)})
    return max(right - left for left, right in pairwise(updates))


def _points(reports: Iterable[_Report]) -> list[Point]:
    points: dict[tuple[str, int], Point] = {}
    clock, passes = {0: 0.0}, {0: 0.0}  # updates -> minutes, and -> epochs
    before = elapsed = 0.0  # minutes at the start of this process, and now
    resumed = False
    for report in reports:
        split, numbers = report.split, report.numbers
        if report.started:
            before, resumed = elapsed, True
        try:
            updates = int(numbers[_UPDATES])
            if updates < 0:
                raise ValueError(f"{updates} updates")
            if resumed:
                points = {key: point for key, point in points.items() if point.updates < updates}
                clock, passes = ({u: at for u, at in known.items() if u < updates} for known in (clock, passes))
                resumed = False
            if "wall" in numbers:
                elapsed = clock[updates] = before + float(numbers["wall"]) / 60
            if split == TRAIN_EPOCH and numbers["epoch"] is not None:
                epoch = int(numbers["epoch"])
                passes[updates] = _passes_at_end(passes, updates, epoch)
                # Resumed within an epoch, training reports that epoch again.
                points = {at: p for at, p in points.items() if at[0] != TRAIN_EPOCH or p.epoch != epoch}
            elif numbers.get("update") is not None:
                passes[updates] = float(numbers["update"])
            points[split, updates] = _point(split, updates, numbers)
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            raise UserError(f"{report.place}: broken report ({error})") from error
    timed = [
        replace(point, minutes=_interpolate(clock, point.updates), epochs=_interpolate(passes, point.updates))
        for point in points.values()
    ]
    return sorted(timed, key=lambda point: (not point.split.startswith(TRAIN), point.split, point.updates))


def _passes_at_end(passes: Mapping[int, float], updates: int, epoch: int) -> float:
    """``epoch``; fewer, by the pace of its other reports, where training stopped within it: it reports that as well."""
    known = sorted((at, passed) for at, passed in passes.items() if epoch - 1 <= passed and at <= updates)
    if len(known) < 2:
        return epoch
    (first, start), (last, passed) = known[0], known[-1]
    passed += (passed - start) / (last - first) * (updates - last)
    return epoch if passed > epoch - 0.01 else passed  # fairseq rounds to a thousandth


def _point(split: str, updates: int, numbers: Mapping[str, Any]) -> Point:
    def number(name: str) -> float | None:
        return None if numbers.get(name) is None else float(numbers[name])

    return Point(
        split=split,
        epoch=None if numbers["epoch"] is None else int(numbers["epoch"]),
        updates=updates,
        minutes=None,
        loss=float(numbers["loss"]),
        nll_loss=number("nll_loss"),
        gnorm=number("gnorm"),
        # Between two updates that were followed there is no number.
        depth={name: float(value) for name, value in numbers.items() if name.startswith(DEPTH) and value is not None},
    )


def _interpolate(known: Mapping[int, float], updates: int) -> float | None:
    """The value at an update, linear between its known neighbours; None after the last of them."""
    places = sorted(known)
    after = bisect_left(places, updates)
    if after == len(places):
        return None
    right = places[after]
    if right == updates:
        return known[right]
    left = places[after - 1]
    return known[left] + (known[right] - known[left]) * (updates - left) / (right - left)
