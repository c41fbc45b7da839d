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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ode_transformer.lab.analysis import plots
from ode_transformer.lab.analysis.training_log import TRAIN, TRAIN_EPOCH, Point, read_log
from ode_transformer.support.arguments import system_names
from ode_transformer.support.depth_log_names import GRADIENT_NORM, PREFIX
from ode_transformer.support.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FIELDS = ("split", "epoch", "updates", "epochs", "minutes", "loss", "nll_loss", "perplexity", "gnorm")
_DIGITS = {"minutes": 3, "epochs": 4, "perplexity": 4}


class Quantity(NamedTuple):
    """A quantity of a report, with the label of its axis.

    :param field: of ``Point``
    :param log: draw it on a logarithmic axis
    """

    label: str
    field: str
    log: bool = False


WHAT = {
    "loss": Quantity("loss (bits)", "loss"),
    "perplexity": Quantity("perplexity", "perplexity", log=True),
    "gradient-norm": Quantity("gradient norm", "gnorm"),
    "learning-rate": Quantity("learning rate", "learning_rate"),
    "tokens-per-second": Quantity("target tokens per second", "tokens_per_second"),
}
LOGGED_BY = ("updates", "minutes", "epochs")  # fields that every log has
LABELS = {"minutes": "minutes of training", "operations": "operations of training"}


@dataclass(frozen=True)
class LoggedRun:
    """A training run with the points of its log.

    :param name: name in plots; seeds of one system have one name
    :param path: folder or log
    """

    name: str
    path: Path
    points: Sequence[Point] = ()

    def points_of(self, split: str, by: str) -> list[Point]:
        """Return the points to draw: for training by epochs, the means over epochs if any epoch ended."""
        points = {name: [point for point in self.points if point.split == name] for name in (split, TRAIN_EPOCH)}
        if split == TRAIN and (by == "epochs" or not points[TRAIN]):
            return points[TRAIN_EPOCH] or points[TRAIN]
        return points[split]


Run = TypeVar("Run", bound=LoggedRun)


def systems_of(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Return the runs of each system by its name, in the order of their first runs."""
    systems: dict[str, list[Run]] = {}
    for run in runs:
        systems.setdefault(run.name, []).append(run)
    return systems


def curve(seeds: Sequence[LoggedRun], split: str, by: str, field: str) -> list[tuple[float, float, float, float]]:
    """Return x, mean, least and greatest y of runs of one name, at the updates that all of them reported.

    :param field: of ``Point``, or a number that the runs logged by layer
    """
    pairs_of_runs: list[dict[int, Any]] = []  # of each run: updates -> x, y
    for run in seeds:
        points = run.points_of(split, by)
        pairs = {p.updates: (getattr(p, by), p.depth.get(field, getattr(p, field, None))) for p in points}
        pairs_of_runs.append({updates: pair for updates, pair in pairs.items() if None not in pair})
    curve_points = []
    for updates in sorted(set.intersection(*map(set, pairs_of_runs))):
        xs, ys = zip(*(pairs[updates] for pairs in pairs_of_runs), strict=True)
        curve_points.append((fmean(xs), fmean(ys), min(ys), max(ys)))
    return curve_points


def logged_layers(runs: Iterable[LoggedRun]) -> list[str]:
    """Return the names of the numbers that runs logged by layer, in the order of the layers."""
    return list(dict.fromkeys(name for run in runs for point in run.points for name in point.depth))


def draw_panel(axes: Axes, systems: Mapping[str, Sequence[LoggedRun]], quantity: str, by: str) -> None:
    """Draw a quantity, or what the runs logged by layer under names of this pattern, of the runs of each system."""
    prefixes = [f"{name}, " if len(systems) > 1 else "" for name in systems]  # a single name stands in the title
    groups = list(zip(prefixes, systems.values(), strict=True))
    (_draw_splits if quantity in WHAT else _draw_layers)(axes, groups, quantity, by)
    axes.set_xlabel(LABELS.get(by, by))
    axes.grid(alpha=0.3)
    if by in ("updates", "epochs"):
        axes.locator_params(axis="x", integer=True, min_n_ticks=1)


def _draw_splits(axes: Axes, groups: Sequence[tuple[str, Sequence[LoggedRun]]], quantity: str, by: str) -> None:
    title, field, log = WHAT[quantity]
    for index, (prefix, seeds) in enumerate(groups):
        style: dict[str, Any] = {"marker": plots.MARKERS[index % len(plots.MARKERS)], "color": f"C{index}"}
        drawn = False
        for split in dict.fromkeys(TRAIN if p.split == TRAIN_EPOCH else p.split for p in seeds[0].points):
            label = "training" if split == TRAIN else split.replace("valid", "validation ", 1).strip()
            line_style = "-" if split == TRAIN else "--"
            drawn |= _draw_curve(axes, seeds, split, by, field, prefix + label, linestyle=line_style, **style)
        if not drawn:
            raise UserError(
                f"{seeds[0].path}: its reports have no {quantity} by {by}, or its seeds no report in common"
            )
    axes.set_ylabel(title)
    axes.set_yscale("log" if log else "linear")


def _draw_layers(axes: Axes, groups: Sequence[tuple[str, Sequence[LoggedRun]]], pattern: str, by: str) -> None:
    from matplotlib import colormaps, rcParams

    logged = logged_layers(run for _, seeds in groups for run in seeds)
    names = [name for name in logged if fnmatchcase(name, pattern)]
    if not names:
        logged_names = ", ".join(logged) or "nothing by layer: train with --log-depth-interval"
        raise UserError(f"--what {pattern}: expected {', '.join(WHAT)}, or what the runs logged: {logged_names}")
    for shade, name in enumerate(names):
        colour = colormaps[rcParams["image.cmap"]](0.9 * shade / max(1, len(names) - 1))
        style: dict[str, Any] = {"marker": plots.MARKERS[shade % len(plots.MARKERS)], "color": colour}
        for index, (prefix, seeds) in enumerate(groups):
            line_style, label = plots.LINE_STYLES[index % len(plots.LINE_STYLES)], prefix + name.removeprefix(PREFIX)
            _draw_curve(axes, seeds, TRAIN, by, name, label, linestyle=line_style, **style)
    axes.set_ylabel(pattern.removeprefix(PREFIX))
    axes.set_yscale("log" if pattern.endswith(GRADIENT_NORM) else "linear")


def _draw_curve(
    axes: Axes, seeds: Sequence[LoggedRun], split: str, by: str, field: str, label: str, **style: Any
) -> bool:
    """Draw one curve; return False if it has no points."""
    points = curve(seeds, split, by, field)
    if not points:
        return False
    x, mean, least, greatest = zip(*points, strict=True)
    every = max(1, len(points) // 8) if split == TRAIN else 1
    axes.plot(x, mean, label=plots.plain_label(label), markevery=every, markersize=4, linewidth=1, **style)
    if len(seeds) > 1:
        axes.fill_between(x, least, greatest, color=style["color"], alpha=0.2, linewidth=0)
    return True


def plot(runs: Sequence[LoggedRun], path: Path, quantity: str, by: str) -> None:
    """Write the figure of the runs in the format of the path's suffix."""
    systems = systems_of(runs)
    with plots.saved_panel(path, 6, 4) as axes:
        draw_panel(axes, systems, quantity, by)
        axes.legend(fontsize="small")
        if len(systems) == 1:
            seeds = f" ({len(runs)} runs)" if len(runs) > 1 else ""
            axes.figure.suptitle(plots.plain_label(runs[0].name + seeds), fontsize="medium")


def report_rows(runs: Sequence[LoggedRun]) -> list[list[object]]:
    """Return a row of titles and one for each report, with the name of its run; None for an unknown number."""
    layers = logged_layers(runs)
    rows: list[list[object]] = [["run", *_FIELDS, *layers, "log"]]
    for run in runs:
        for point in run.points:
            values = {name: getattr(point, name) for name in _FIELDS}
            for name, digits in _DIGITS.items():
                values[name] = None if values[name] is None else round(values[name], digits)
            rows.append([run.name, *values.values(), *(point.depth.get(layer) for layer in layers), run.path])
    return rows


def run(args: argparse.Namespace) -> None:
    """Write the curves of the logs as a plot, a table or both."""
    plots.check_outputs(args.output, args.csv)
    systems = zip(system_names(args.systems), args.systems, strict=True)
    runs = [LoggedRun(name, path, read_log(path)) for name, (_, path) in systems]
    if args.output is not None:
        plot(runs, args.output, args.what, args.by)
    plots.write_csv(args.csv, report_rows(runs))
    for logged in runs:
        last_update = max(point.updates for point in logged.points)
        print(f"{logged.name}: {len(logged.points)} reports up to update {last_update}")
