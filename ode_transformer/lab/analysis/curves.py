"""``ode-transformer analyse curves``: reports of fairseq-train, drawn against updates, minutes or epochs.

    --what loss, perplexity            of training and validation (ODE Transformer 2022, Figure 5: perplexity by epochs)
    --what gradient-norm               norm of the gradient by all parameters (Figure 6: by updates)
    --what learning-rate               with the end of the warm-up in a report
    --what tokens-per-second           target tokens of training per second
    --what depth/encoder/*/weight_1    of layers, where the training had --log-depth-interval

Runs of the same name, such as seeds of one system, are one curve: their mean, within the band from the least to the
greatest of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from ode_transformer.lab.analysis.plots import LINE_STYLES, MARKERS, check_outputs, new_figure, plain_label, save_figure
from ode_transformer.lab.analysis.training_log import TRAIN, TRAIN_EPOCH, Point, read_log
from ode_transformer.support.arguments import system_names
from ode_transformer.support.depth_log_names import GRADIENT_NORM, PREFIX
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import write_text
from ode_transformer.support.tables import csv_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FIELDS = ("split", "epoch", "updates", "epochs", "minutes", "loss", "nll_loss", "perplexity", "gnorm")
_DIGITS = {"minutes": 3, "epochs": 4, "perplexity": 4}

Value = Callable[[Point], float | None]


class Quantity(NamedTuple):
    """A quantity of a report, with the label of its axis.

    :param log: draw it on a logarithmic axis
    :param whole_ticks: ticks only at whole numbers
    """

    label: str
    value: Value
    log: bool = False
    whole_ticks: bool = False


WHAT = {
    "loss": Quantity("loss (bits)", lambda point: point.loss),
    "perplexity": Quantity("perplexity", lambda point: point.perplexity, log=True),
    "gradient-norm": Quantity("gradient norm", lambda point: point.gnorm),
    "learning-rate": Quantity("learning rate", lambda point: point.learning_rate),
    "tokens-per-second": Quantity("target tokens per second", lambda point: point.tokens_per_second),
}
BY = {
    "updates": Quantity("updates", lambda point: point.updates, whole_ticks=True),
    "minutes": Quantity("minutes of training", lambda point: point.minutes),
    "epochs": Quantity("epochs", lambda point: point.epochs, whole_ticks=True),
    "operations": Quantity("operations of training", lambda point: point.operations),
}
LOGGED_BY = ("updates", "minutes", "epochs")  # those that every log has


@dataclass(frozen=True)
class LoggedRun:
    """A training run with the points of its log.

    :param name: name in plots; seeds of one system have one name
    :param warmup: updates of the warm-up; None if they are not known
    """

    name: str
    path: Path
    points: list[Point]
    warmup: int | None = None

    def points_of(self, split: str, by: str) -> list[Point]:
        """Return the points to draw: for training by epochs, the means over epochs if any epoch ended."""
        points = {name: [point for point in self.points if point.split == name] for name in (split, TRAIN_EPOCH)}
        if split == TRAIN and (by == "epochs" or not points[TRAIN]):
            return points[TRAIN_EPOCH] or points[TRAIN]
        return points[split]

    def splits(self) -> list[str]:
        """Return ``train`` and the validation sets."""
        return list(dict.fromkeys(TRAIN if point.split == TRAIN_EPOCH else point.split for point in self.points))


class Curve(NamedTuple):
    """Mean of several runs at the updates that all of them reported, with the least and the greatest of them."""

    x: list[float]
    mean: list[float]
    least: list[float]
    greatest: list[float]


def curve(seeds: Sequence[LoggedRun], split: str, by: str, value: Value) -> Curve:
    """Return the curve of runs of one name."""
    position = BY[by].value
    pairs_of_runs: list[dict[int, tuple[float, float]]] = []  # of each run: updates -> x, y
    for run in seeds:
        pairs = {point.updates: (position(point), value(point)) for point in run.points_of(split, by)}
        pairs_of_runs.append({at: (x, y) for at, (x, y) in pairs.items() if x is not None and y is not None})
    result = Curve([], [], [], [])
    for updates in sorted(set.intersection(*map(set, pairs_of_runs))):
        xs, ys = zip(*(pairs[updates] for pairs in pairs_of_runs), strict=True)
        for values, number in zip(result, (fmean(xs), fmean(ys), min(ys), max(ys)), strict=True):
            values.append(number)
    return result


def split_label(split: str) -> str:
    """Return the name of a split in a legend: ``training``, ``validation``, ``validation 1``, …"""
    if split == TRAIN:
        return "training"
    number = split.removeprefix("valid")
    return f"validation {number}".strip() if split.startswith("valid") else split


def logged_layers(runs: Iterable[LoggedRun]) -> list[str]:
    """Return the names of the numbers that runs logged by layer, in the order of the layers."""
    return list(dict.fromkeys(name for run in runs for point in run.points for name in point.depth))


def draw_panel(axes: Axes, groups: Sequence[Sequence[LoggedRun]], quantity: str, by: str) -> None:
    """Draw one panel."""
    if quantity in WHAT:
        _draw_splits(axes, groups, quantity, by)
    else:
        _draw_layers(axes, groups, quantity, by)
    axes.set_xlabel(BY[by].label)
    axes.grid(alpha=0.3)
    if BY[by].whole_ticks:
        axes.locator_params(axis="x", integer=True, min_n_ticks=1)


def _prefix(groups: Sequence[Sequence[LoggedRun]], seeds: Sequence[LoggedRun]) -> str:
    """Return what precedes a label; of a single group, the title of the figure has the name."""
    return f"{seeds[0].name}, " if len(groups) > 1 else ""


def _draw_splits(axes: Axes, groups: Sequence[Sequence[LoggedRun]], quantity: str, by: str) -> None:
    title, value, log, _ = WHAT[quantity]
    for index, seeds in enumerate(groups):
        curves = [
            _draw_curve(axes, seeds, split, by, value, _prefix(groups, seeds) + split_label(split), index, f"C{index}")
            for split in seeds[0].splits()
        ]
        if not any(curves):
            raise UserError(
                f"{seeds[0].path}: its reports have no {quantity} by {by}, or its seeds no report in common"
            )
    axes.set_ylabel(title)
    axes.set_yscale("log" if log else "linear")


def _draw_layers(axes: Axes, groups: Sequence[Sequence[LoggedRun]], pattern: str, by: str) -> None:
    from matplotlib import colormaps, rcParams

    logged = logged_layers(run for seeds in groups for run in seeds)
    names = [name for name in logged if fnmatchcase(name, pattern)]
    if not names:
        logged_names = ", ".join(logged) or "nothing by layer: train with --log-depth-interval"
        raise UserError(f"--what {pattern}: expected {', '.join(WHAT)}, or what the runs logged: {logged_names}")
    for shade, name in enumerate(names):
        colour = colormaps[rcParams["image.cmap"]](0.9 * shade / max(1, len(names) - 1))
        for index, seeds in enumerate(groups):
            label = _prefix(groups, seeds) + name.removeprefix(PREFIX)
            line_style = LINE_STYLES[index % len(LINE_STYLES)]
            value = partial(lambda name, point: point.depth.get(name), name)
            _draw_curve(axes, seeds, TRAIN, by, value, label, shade, colour, line_style)
    axes.set_ylabel(pattern.removeprefix(PREFIX))
    axes.set_yscale("log" if pattern.endswith(GRADIENT_NORM) else "linear")


def _draw_curve(
    axes: Axes,
    seeds: Sequence[LoggedRun],
    split: str,
    by: str,
    value: Value,
    label: str,
    number: int,
    colour: Any,
    line_style: str = "-",
) -> bool:
    """Draw one curve; return False if it has no points."""
    points = curve(seeds, split, by, value)
    if not points.x:
        return False
    marks = {"marker": MARKERS[number % len(MARKERS)], "markersize": 4, "color": colour, "linewidth": 1}
    every = max(1, len(points.x) // 8) if split == TRAIN else 1
    style = line_style if split == TRAIN else "--"
    axes.plot(points.x, points.mean, label=plain_label(label), linestyle=style, markevery=every, **marks)
    if len(seeds) > 1:
        axes.fill_between(points.x, points.least, points.greatest, color=colour, alpha=0.2, linewidth=0)
    return True


def plot(runs: Sequence[LoggedRun], path: Path, quantity: str = "loss", by: str = "updates") -> None:
    """Write the figure of the runs in the format of the path's suffix."""
    names = list(dict.fromkeys(run.name for run in runs))
    figure = new_figure(6, 4)
    axes = figure.subplots()
    draw_panel(axes, [[run for run in runs if run.name == name] for name in names], quantity, by)
    axes.legend(fontsize="small")
    if len(names) == 1:
        seeds = f" ({len(runs)} runs)" if len(runs) > 1 else ""
        figure.suptitle(plain_label(names[0] + seeds), fontsize="medium")
    save_figure(figure, path)


def write_csv(runs: Sequence[LoggedRun], path: Path) -> None:
    """Write one line per report, with the name of its run; an unknown number is an empty field."""
    layers = logged_layers(runs)
    rows: list[list[object]] = [["run", *_FIELDS, *layers, "log"]]
    for run in runs:
        for point in run.points:
            values = {name: getattr(point, name) for name in _FIELDS}
            for name, digits in _DIGITS.items():
                values[name] = None if values[name] is None else round(values[name], digits)
            rows.append([run.name, *values.values(), *(point.depth.get(layer) for layer in layers), run.path])
    write_text(path, csv_text(rows))


def run(args: argparse.Namespace) -> int:
    """Write the curves of the logs as a plot, a table or both."""
    check_outputs(args.output, args.csv)
    systems = zip(system_names(args.systems), args.systems, strict=True)
    runs = [LoggedRun(name, path, read_log(path)) for name, (_, path) in systems]
    if args.output is not None:
        plot(runs, args.output, args.what, args.by)
    if args.csv is not None:
        write_csv(runs, args.csv)
    for logged in runs:
        last_update = max(point.updates for point in logged.points)
        print(f"{logged.name}: {len(logged.points)} reports up to update {last_update}")
    return 0
