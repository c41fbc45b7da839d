"""Reports of fairseq-train, read from its JSON log or from the TensorBoard files of ``--tensorboard-logdir``.

Train with ``--log-format json``; the log is ``--log-file`` or the captured output. A report is a JSON object at the
end of a line: ``{"epoch": 2, "loss": "4.46", "num_updates": "50", "wall": "31", ...}`` since the previous report, the
same with keys ``train_loss`` ... over an epoch, and ``valid_loss`` ... for a validation set called ``valid``. Losses
are in bits. TensorBoard has the same reports under ``train_inner``, ``train`` and ``valid``, without the number of the
epoch.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from ode_transformer.support.errors import UserError, one_line
from ode_transformer.support.files import open_input

_TRAINING_STARTS = re.compile(r"training on \d+ devices")  # logged once by each process, before its first update
UPDATES = "num_updates"

# Splits of a report: training since the last report, and training over an epoch
TRAIN, TRAIN_EPOCH = "train", "train-epoch"
_SPLITS = {"train_inner": TRAIN, "train": TRAIN_EPOCH}


@dataclass(frozen=True)
class Report:
    """The numbers of one report under their names in the log, without prefix.

    :param location: file and line of the report, for errors
    :param split: ``train``, ``train-epoch`` or the name of a validation set
    :param resumed: a process began to train since the previous report
    """

    location: str
    split: str
    numbers: Mapping[str, Any]
    resumed: bool


def log_reports(path: Path) -> Iterator[Report]:
    """Yield the reports of a log in the order of its lines."""
    resumed = False
    # Only the numbers matter, so a sentence that is not UTF-8 is no reason to stop.
    with io.TextIOWrapper(open_input(path), encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            resumed = resumed or bool(_TRAINING_STARTS.search(line))
            if (report := parse_report(line)) is not None:
                yield Report(f"{path}: line {number}", *report, resumed)
                resumed = False


def parse_report(line: str) -> tuple[str, dict[str, Any]] | None:
    """Parse a line of a log; None if it holds no report.

    :return: the split and its numbers, as in ``Report``
    """
    try:
        report = json.loads(line[line.index("{") :])
    except (RecursionError, ValueError):  # no brace, no JSON behind it, or JSON that is no report
        return None
    for key in report:
        if key.endswith(UPDATES):
            prefix = key.removesuffix(UPDATES)
            split = _SPLITS.get(prefix.removesuffix("_") or "train_inner", prefix.removesuffix("_"))
            return split, {key.removeprefix(prefix): value for key, value in report.items()}
    return None


def event_reports(folder: Path) -> Iterator[Report]:
    """Yield the reports of TensorBoard files in the order of their time; each process has files of its own.

    :raises UserError: a record is no event, or a scalar no number
    """
    from google.protobuf.message import DecodeError
    from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator  # takes a second

    timed_reports: list[tuple[float, str, str, dict[str, Any]]] = []
    for file in sorted(folder.glob("*/*tfevents*")):
        numbers_at: dict[int, dict[str, Any]] = defaultdict(dict)
        times: dict[int, float] = {}
        try:
            events = EventAccumulator(str(file), size_guidance={SCALARS: 0}, purge_orphaned_data=False).Reload()
            for tag in events.Tags()["scalars"]:
                for event in events.Scalars(tag):
                    numbers_at[event.step][tag] = event.value
                    times[event.step] = min(event.wall_time, times.get(event.step, event.wall_time))
        # What records raise that no program writes
        except (DecodeError, MemoryError, OverflowError, TypeError, ValueError) as error:
            raise UserError(f"{file}: cannot be read as a TensorBoard file: {one_line(error)}") from error
        split = _SPLITS.get(file.parent.name, file.parent.name)
        timed_reports += [
            (times[step], split, str(file), {**numbers, UPDATES: step}) for step, numbers in numbers_at.items()
        ]
    clock, reports = 0.0, []
    for _, split, location, numbers in sorted(timed_reports, key=lambda report: report[0]):
        if "loss" in numbers:  # without one, another program wrote it into the same folder
            reports.append(Report(location, split, numbers, numbers.get("wall", clock) < clock))
            clock = numbers.get("wall", clock)
    epoch_length = _updates_per_epoch(reports)
    for report in reports:
        epochs = report.numbers[UPDATES] / epoch_length if epoch_length else None
        position = {"epoch": None} if epochs is None else {"epoch": math.ceil(epochs), "update": epochs}
        yield replace(report, numbers={**report.numbers, **position})


def _updates_per_epoch(reports: Sequence[Report]) -> int | None:
    """Return the number of updates between two reports of whole epochs; None if no epoch ended within the training.

    A process that stops reports the part of its epoch, too: such a report is followed by nothing or by a new process.
    """
    ends = [n for n, report in enumerate(reports) if report.split == TRAIN_EPOCH]
    if not any(reports[n + 1 :] and not any(r.resumed for r in reports[n + 1 : n + 3]) for n in ends):
        return None
    updates = sorted({0, *(reports[n].numbers[UPDATES] for n in ends)})
    return max(right - left for left, right in pairwise(updates))
