"""Plots of training runs: a panel for each quantity and axis, a curve for each run name and split."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from ode_transformer.analysis.curves.reports import TRAIN, TRAIN_EPOCH
from ode_transformer.analysis.curves.training_log import Point
from ode_transformer.analysis.plots import LINE_STYLES, MARKERS, new_figure, plain_label, save_figure
from ode_transformer.support.depth_log_names import GRADIENT_NORM, PREFIX
from ode_transformer.support.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    """

    name: str
    path: Path
    points: list[Point]

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


def layer_series(runs: Iterable[LoggedRun], pattern: str) -> list[str]:
    """Return the names by layer that match a pattern such as ``depth/encoder/*/weight_1``, in the order of the layers.

    :raises UserError: no name matches
    """
    names = list(dict.fromkeys(name for run in runs for point in run.points for name in point.depth))
    matches = [name for name in names if fnmatchcase(name, pattern)]
    if not matches and not names:
        raise UserError(f"--what {pattern}: nothing was logged by layer: train with --log-depth-interval")
    if not matches:
        raise UserError(f"--what {pattern}: no run has it; known are {', '.join(names)}")
    return matches


def draw_panel(axes: Axes, groups: Sequence[Sequence[LoggedRun]], quantity: str, by: str) -> None:
    """Draw one panel.

    :param groups: runs of one name each
    :raises UserError: a group has nothing to draw
    """
    named = len(groups) > 1  # otherwise the title of the figure has the name
    if quantity in WHAT:
        title, value, log, _ = WHAT[quantity]
        for index, seeds in enumerate(groups):
            prefix = f"{seeds[0].name}, " if named else ""
            curves = [
                _draw_curve(axes, seeds, split, by, value, prefix + split_label(split), index, color=f"C{index}")
                for split in seeds[0].splits()
            ]
            if not any(curves):
                drawable = [any(value(p) is not None and BY[by].value(p) is not None for p in r.points) for r in seeds]
                if len(seeds) > 1 and all(drawable):
                    raise UserError(f"{seeds[0].name}: its {len(seeds)} seeds have no {by} in common, so no mean")
                missing = by if any(value(point) is not None for run in seeds for point in run.points) else quantity
                raise UserError(f"{seeds[0].path}: no {missing} in its reports, so no --what {quantity} --by {by}")
    else:
        from matplotlib import colormaps, rcParams

        names = layer_series([run for seeds in groups for run in seeds], quantity)
        title, log = quantity.removeprefix(PREFIX), quantity.endswith(GRADIENT_NORM)
        for shade, name in enumerate(names):
            colour = colormaps[rcParams["image.cmap"]](0.9 * shade / max(1, len(names) - 1))
            for index, seeds in enumerate(groups):
                style = {"color": colour, "linestyle": LINE_STYLES[index % len(LINE_STYLES)]}
                prefix = f"{seeds[0].name}, " if named else ""
                label = prefix + name.removeprefix(PREFIX)
                _draw_curve(axes, seeds, TRAIN, by, _layer_value(name), label, shade, **style)
    axes.set_xlabel(BY[by].label)
    axes.set_ylabel(title)
    axes.set_yscale("log" if log else "linear")
    axes.grid(alpha=0.3)
    if BY[by].whole_ticks:
        axes.locator_params(axis="x", integer=True)


def _layer_value(name: str) -> Value:
    return lambda point: point.depth.get(name)


def _draw_curve(
    axes: Axes, seeds: Sequence[LoggedRun], split: str, by: str, value: Value, label: str, number: int, **style: Any
) -> bool:
    """Draw one curve; return False if it has no points.

    :param number: of the system or layer, which chooses the marker
    """
    points = curve(seeds, split, by, value)
    if not points.x:
        return False
    style |= {"marker": MARKERS[number % len(MARKERS)], "markersize": 4}
    if split != TRAIN:
        style["linestyle"] = "--"
    else:
        style["markevery"] = max(1, len(points.x) // 8)
    axes.plot(points.x, points.mean, label=plain_label(label), linewidth=1, **style)
    if len(seeds) > 1:
        axes.fill_between(points.x, points.least, points.greatest, color=style["color"], alpha=0.2, linewidth=0)
    return True


def draw_figure(runs: Sequence[LoggedRun], quantities: Sequence[str], by: Sequence[str]) -> Figure:
    """Return a figure with a panel for each quantity (rows) and axis (columns).

    :raises UserError: matplotlib is not installed, or a run has nothing to draw
    """
    names = list(dict.fromkeys(run.name for run in runs))
    groups = [[run for run in runs if run.name == name] for name in names]
    figure = new_figure(5 * len(by), 4 * len(quantities))
    for row, panels in zip(
        quantities, figure.subplots(len(quantities), len(by), sharey="row", squeeze=False), strict=True
    ):
        for column, axes in zip(by, panels, strict=True):
            draw_panel(axes, groups, row, column)
        panels[0].legend(fontsize="small")
        for axes in panels[1:]:
            axes.set_ylabel("")
    if len(names) == 1:
        seeds = f" ({len(runs)} runs)" if len(runs) > 1 else ""
        figure.suptitle(plain_label(names[0] + seeds), fontsize="medium")
    return figure


def plot(
    runs: Sequence[LoggedRun],
    path: Path,
    quantities: Sequence[str] = ("loss",),
    by: Sequence[str] = ("updates", "minutes"),
) -> None:
    """Write the figure of the runs in the format of the path's suffix.

    :raises UserError: matplotlib is not installed, or a run has nothing to draw
    """
    save_figure(draw_figure(runs, quantities, by), path)
