"""``ode-transformer curves``: loss against updates and against time, from the logs of fairseq-train.

Train with ``--log-format json``; the log is ``--log-file`` or the captured output. A report is a JSON
object at the end of a line: ``{"epoch": 2, "loss": "4.46", "num_updates": "50", "wall": "31", ...}`` since
the previous report, the same with keys ``train_loss`` ... over an epoch, and ``valid_loss`` ... for a
validation set called ``valid``. Losses are in bits.

What fairseq leaves to its reader: a log file holds a report several times; the clock ("wall", in seconds)
starts at 0 again when training is resumed; a validation has no clock.
"""

import argparse
import csv
import json
import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ode_transformer.analysis.plots import new_figure
from ode_transformer.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_START = re.compile(r"training on \d+ devices")  # fairseq-train says this once, before its first update
_UPDATES = "num_updates"


@dataclass(frozen=True)
class Point:
    """One report of a run.

    :param split: ``train`` or the name of a validation set
    :param minutes: running time of all processes that trained the run up to here; None after the last clock
    :param loss: of the training criterion, in bits
    :param nll_loss: negative log-likelihood in bits per token; None if the criterion reports none
    """

    split: str
    epoch: int
    updates: int
    minutes: float | None
    loss: float
    nll_loss: float | None


def read_log(path: Path) -> list[Point]:
    """All training reports and validations of one run, by split and rising update.

    Where a run was resumed from an older checkpoint, the reports that it then overtook are left out.

    :raises UserError: there are none, or a number in one is not a number
    """
    points: dict[tuple[str, int], Point] = {}
    clock = {0: 0.0}  # updates -> minutes
    before = elapsed = 0.0  # minutes at the start of this process, and now
    resumed = False
    # Only the numbers matter, so bytes of a sentence that are no UTF-8 are no reason to stop.
    with open(path, encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            if _START.search(line):
                before, resumed = elapsed, True
            prefix, report = _report(line)
            if not report:
                continue
            try:
                updates = int(report[prefix + _UPDATES])
                if updates < 0:
                    raise ValueError(f"{updates} updates")
                if resumed:
                    points = {key: point for key, point in points.items() if point.updates < updates}
                    clock = {u: minutes for u, minutes in clock.items() if u < updates}
                    resumed = False
                if f"{prefix}wall" in report:
                    elapsed = clock[updates] = before + float(report[f"{prefix}wall"]) / 60
                if prefix != "train_":
                    point = _point(prefix, updates, report)
                    points[point.split, updates] = point
            except (KeyError, OverflowError, TypeError, ValueError) as error:
                raise UserError(f"{path}: line {number}: broken report ({error})") from error
    if not points:
        raise UserError(f"{path}: no reports in it: train with --log-format json and a smaller --log-interval")
    timed = [replace(point, minutes=_interpolate(clock, point.updates)) for point in points.values()]
    return sorted(timed, key=lambda point: (point.split != "train", point.split, point.updates))


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


def _point(prefix: str, updates: int, report: dict[str, Any]) -> Point:
    nll = report.get(f"{prefix}nll_loss")
    return Point(
        split=prefix.removesuffix("_") or "train",
        epoch=int(report["epoch"]),
        updates=updates,
        minutes=None,
        loss=float(report[f"{prefix}loss"]),
        nll_loss=None if nll is None else float(nll),
    )


def _interpolate(clock: dict[int, float], updates: int) -> float | None:
    """Minutes at an update, linear between the neighbours on the clock; None after the last of them."""
    known = sorted(clock)
    after = bisect_left(known, updates)
    if after == len(known):
        return None
    right = known[after]
    if right == updates:
        return clock[right]
    left = known[after - 1]
    return clock[left] + (clock[right] - clock[left]) * (updates - left) / (right - left)


def write_csv(runs: dict[str, list[Point]], path: Path) -> None:
    """One line per report, with the name of its run; an unknown number is an empty field."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, ["run", *(field.name for field in fields(Point))], lineterminator="\n")
        table.writeheader()
        for name, points in runs.items():
            for point in points:
                minutes = None if point.minutes is None else round(point.minutes, 3)
                table.writerow({"run": name} | asdict(point) | {"minutes": minutes})


def plot(runs: dict[str, list[Point]], path: Path) -> None:
    """Draw the loss against updates (left) and against minutes (right), a colour per run, as a PNG.

    :raises UserError: matplotlib is not installed
    """
    figure = new_figure(10, 4)
    by_updates, by_minutes = figure.subplots(1, 2, sharey=True)
    for index, (name, points) in enumerate(runs.items()):
        for split in dict.fromkeys(point.split for point in points):
            curve = [point for point in points if point.split == split]
            style = {"color": f"C{index % 10}", "label": f"{name} {split}"}
            style |= {"linewidth": "1"} if split == "train" else {"linestyle": "--", "marker": "o", "markersize": "4"}
            by_updates.plot([point.updates for point in curve], [point.loss for point in curve], **style)
            timed = [(point.minutes, point.loss) for point in curve if point.minutes is not None]
            by_minutes.plot([minutes for minutes, _ in timed], [loss for _, loss in timed], **style)
    _label(by_updates, "updates", "loss (bits)")
    _label(by_minutes, "minutes of training", "")
    by_updates.legend()
    figure.savefig(path, format="png", dpi=120)


def _label(axes: "Axes", x: str, y: str) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.3)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``ode-transformer curves``."""
    parser.add_argument("logs", nargs="+", type=Path, metavar="LOG", help="one log per run")
    parser.add_argument("--output", type=Path, metavar="FILE.png", help="the plot")
    parser.add_argument("--csv", type=Path, metavar="FILE.csv", help="the numbers")


def run_names(logs: Sequence[Path]) -> list[str]:
    """What to call each run: its log's name, or the whole path where names are the same."""
    names = [log.stem for log in logs]
    return names if len(set(names)) == len(names) else [str(log) for log in logs]


def run(args: argparse.Namespace) -> int:
    """Write the curves of the logs as a plot, a table or both."""
    if args.output is None and args.csv is None:
        raise UserError("nothing to write: give --output, --csv or both")
    if twice := [str(log) for log in args.logs if args.logs.count(log) > 1]:
        raise UserError(f"{twice[0]} is named twice")
    runs = {name: read_log(log) for name, log in zip(run_names(args.logs), args.logs, strict=True)}
    if args.csv is not None:
        write_csv(runs, args.csv)
    if args.output is not None:
        plot(runs, args.output)
    for name, points in runs.items():
        print(f"{name}: {len(points)} reports up to update {max(point.updates for point in points)}")
    return 0
