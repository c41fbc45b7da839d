"""``ode-transformer curves``: what fairseq-train reported of some runs, drawn against updates, minutes and epochs.

    --what loss, perplexity            of training and validation (ODE Transformer 2022, Figure 5: perplexity by epochs)
    --what gradient-norm               length of the gradient by all parameters (Figure 6: by updates)
    --what depth/encoder/*/weight_1    of layers, where the training had --log-depth-interval

A panel for each combination of ``--what`` (rows) and ``--by`` (columns). Runs of the same name, such as seeds of one
system, are one curve: their mean, within the band from the least to the greatest of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from ode_transformer.analysis.curves.training_log import DEPTH, TRAIN, TRAIN_EPOCH, Point, read_log, read_run
from ode_transformer.analysis.plots import new_figure, plain_label, save_figure
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import check_writable, write_text
from ode_transformer.support.tables import csv_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Point", "Run", "plot", "read_log", "run_names", "write_csv"]

Value = Callable[[Point], float | None]


class Quantity(NamedTuple):
    """Something that is drawn against something else."""

    label: str
    of: Value
    log: bool = False


WHAT = {
    "loss": Quantity("loss (bits)", lambda point: point.loss),
    "perplexity": Quantity("perplexity", lambda point: point.perplexity, log=True),
    "gradient-norm": Quantity("gradient norm", lambda point: point.gnorm),
}
BY: dict[str, Quantity] = {
    "updates": Quantity("updates", lambda point: point.updates),
    "minutes": Quantity("minutes of training", lambda point: point.minutes),
    "epochs": Quantity("epochs", lambda point: point.epochs),
}
_FIELDS = ("split", "epoch", "updates", "epochs", "minutes", "loss", "nll_loss", "perplexity", "gnorm")
_DASHES = ("-", "--", ":", "-.")


@dataclass(frozen=True)
class Run:
    """A training.

    :param name: what to call it; seeds of one system have one name
    """

    name: str
    path: Path
    points: list[Point]

    def of_split(self, split: str, by: str) -> list[Point]:
        """The points that are drawn: of training by epochs, the means over epochs, if any ended."""
        found = {name: [point for point in self.points if point.split == name] for name in (split, TRAIN_EPOCH)}
        if split == TRAIN and (by == "epochs" or not found[TRAIN]):
            return found[TRAIN_EPOCH] or found[TRAIN]
        return found[split]

    def splits(self) -> list[str]:
        """``train``, then the validation sets."""
        return list(dict.fromkeys(TRAIN if point.split == TRAIN_EPOCH else point.split for point in self.points))


class Curve(NamedTuple):
    """The mean of runs at the updates that all of them reported, and the least and greatest of them."""

    x: list[float]
    mean: list[float]
    least: list[float]
    greatest: list[float]


def curve(seeds: Sequence[Run], split: str, by: str, value: Value) -> Curve:
    """Of runs of one name."""
    place = BY[by].of
    found: list[dict[int, tuple[float, float]]] = []  # of each run: updates -> x, y
    for run in seeds:
        pairs = {point.updates: (place(point), value(point)) for point in run.of_split(split, by)}
        found.append({at: (x, y) for at, (x, y) in pairs.items() if x is not None and y is not None})
    made = Curve([], [], [], [])
    for updates in sorted(set.intersection(*map(set, found))):
        xs, ys = zip(*(known[updates] for known in found), strict=True)
        for values, number in zip(made, (fmean(xs), fmean(ys), min(ys), max(ys)), strict=True):
            values.append(number)
    return made


def matching(runs: Sequence[Run], pattern: str) -> list[str]:
    """The names by layer that a pattern such as ``depth/encoder/*/weight_1`` fits, in the order of the layers.

    :raises UserError: there are none
    """
    names = list(dict.fromkeys(name for run in runs for point in run.points for name in point.depth))
    found = [name for name in names if fnmatchcase(name, pattern)]
    if not found and not names:
        raise UserError(f"--what {pattern}: nothing was logged by layer: train with --log-depth-interval")
    if not found:
        raise UserError(f"--what {pattern}: no run has it; known are {', '.join(names)}")
    return found


def draw(axes: Axes, groups: Sequence[Sequence[Run]], what: str, by: str) -> None:
    """One panel.

    :param groups: runs of one name each
    :raises UserError: there is nothing to draw of one of them
    """
    if what in WHAT:
        label, of, log = WHAT[what]
        for index, seeds in enumerate(groups):
            drawn = [_line(axes, seeds, split, by, of, f"C{index % 10}", split) for split in seeds[0].splits()]
            if not any(drawn):
                missing = by if any(of(point) is not None for run in seeds for point in run.points) else what
                raise UserError(f"{seeds[0].path}: no {missing} in its reports, so no --what {what} --by {by}")
    else:
        from matplotlib import colormaps

        names = matching([run for seeds in groups for run in seeds], what)
        label, log = what.removeprefix(DEPTH), what.endswith("gradient_norm")
        for shade, name in enumerate(names):
            colour = colormaps["viridis"](0.9 * shade / max(1, len(names) - 1))
            for index, seeds in enumerate(groups):
                _line(
                    axes,
                    seeds,
                    TRAIN,
                    by,
                    lambda point, name=name: point.depth.get(name),
                    colour,
                    name.removeprefix(DEPTH),
                    linestyle=_DASHES[index % len(_DASHES)],
                )
    axes.set_xlabel(BY[by].label)
    axes.set_ylabel(label)
    axes.set_yscale("log" if log else "linear")
    axes.grid(alpha=0.3)


def _line(
    axes: Axes, seeds: Sequence[Run], split: str, by: str, of: Value, colour: object, label: str, **style: object
) -> bool:
    """Draws one curve; whether there was anything to draw."""
    found = curve(seeds, split, by, of)
    if not found.x:
        return False
    if split != TRAIN:
        style = {"linestyle": "--", "marker": "o", "markersize": 4}
    elif len(found.x) <= 30:  # one alone would not be seen
        style["marker"] = "."
    axes.plot(found.x, found.mean, color=colour, label=plain_label(f"{seeds[0].name} {label}"), linewidth=1, **style)
    if len(seeds) > 1:
        axes.fill_between(found.x, found.least, found.greatest, color=colour, alpha=0.2, linewidth=0)
    return True


def plot(runs: Sequence[Run], path: Path, what: Sequence[str] = ("loss",), by: Sequence[str] = tuple(BY)[:2]) -> None:
    """Draw the panels as a PNG.

    :raises UserError: matplotlib is not installed, or there is nothing to draw of a run
    """
    groups = [[run for run in runs if run.name == name] for name in dict.fromkeys(run.name for run in runs)]
    figure = new_figure(5 * len(by), 4 * len(what))
    for row, panels in zip(what, figure.subplots(len(what), len(by), sharey="row", squeeze=False), strict=True):
        for column, axes in zip(by, panels, strict=True):
            draw(axes, groups, row, column)
        panels[0].legend(fontsize="small")
        for axes in panels[1:]:
            axes.set_ylabel("")
    save_figure(figure, path)


def write_csv(runs: Sequence[Run], path: Path) -> None:
    """One line per report, with the name of its run; an unknown number is an empty field."""
    layers = list(dict.fromkeys(name for run in runs for point in run.points for name in point.depth))
    rows: list[list[object]] = [["run", *_FIELDS, *layers, "log"]]
    for run in runs:
        for point in run.points:
            row = {name: getattr(point, name) for name in _FIELDS}
            for name, digits in (("minutes", 3), ("epochs", 4), ("perplexity", 4)):
                row[name] = None if row[name] is None else round(row[name], digits)
            rows.append([run.name, *row.values(), *(point.depth.get(layer) for layer in layers), run.path])
    write_text(path, csv_text(rows))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``ode-transformer curves``."""
    parser.add_argument(
        "logs",
        nargs="+",
        type=Path,
        metavar="RUN",
        help="a log, a folder of TensorBoard files, or a folder of scripts/train.sh, for each run",
    )
    parser.add_argument("--names", nargs="+", metavar="NAME", help="what to call them; runs of one name are one curve")
    parser.add_argument(
        "--what",
        nargs="+",
        default=["loss"],
        metavar="WHAT",
        help=f"rows of the plot: {', '.join(WHAT)}, depth/encoder/*/gradient_norm, ... (default: loss)",
    )
    parser.add_argument(
        "--by", nargs="+", choices=BY, default=["updates", "minutes"], help="columns (default: updates minutes)"
    )
    parser.add_argument("--output", type=Path, metavar="FILE.png", help="the plot")
    parser.add_argument("--csv", type=Path, metavar="FILE.csv", help="all numbers")


def run_names(logs: Sequence[Path]) -> list[str]:
    """What to call each run: its log's or folder's name, or the whole path where names are the same."""
    names = [log.name if log.is_dir() else log.stem for log in logs]
    return names if len(set(names)) == len(names) else [str(log) for log in logs]


def run(args: argparse.Namespace) -> int:
    """Write the curves of the logs as a plot, a table or both."""
    if args.output is None and args.csv is None:
        raise UserError("nothing to write: give --output, --csv or both")
    if twice := [str(log) for log in args.logs if args.logs.count(log) > 1]:
        raise UserError(f"{twice[0]} is named twice")
    names = args.names or run_names(args.logs)
    if len(names) != len(args.logs):
        raise UserError(f"--names: {len(names)} for {len(args.logs)} runs")
    for what in args.what:
        if what not in WHAT and not what.startswith(DEPTH):
            raise UserError(f"--what {what}: expected {', '.join(WHAT)} or a name that begins with {DEPTH}")
    for place in (args.output, args.csv):
        if place is not None:
            check_writable(place)
    runs = [Run(name, path, read_run(path)) for name, path in zip(names, args.logs, strict=True)]
    if args.output is not None:
        plot(runs, args.output, args.what, args.by)
    if args.csv is not None:
        write_csv(runs, args.csv)
    for made in runs:
        print(f"{made.name}: {len(made.points)} reports up to update {max(point.updates for point in made.points)}")
        if "perplexity" in args.what and any(point.nll_loss is None for point in made.points):
            print(f"{made.name}: no nll_loss in some reports: their perplexity is that of the loss")
    return 0
