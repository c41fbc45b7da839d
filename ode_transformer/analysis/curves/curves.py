"""``ode-transformer analyse curves``: reports of fairseq-train, drawn against updates, minutes and epochs.

    --what loss, perplexity            of training and validation (ODE Transformer 2022, Figure 5: perplexity by epochs)
    --what gradient-norm               norm of the gradient by all parameters (Figure 6: by updates)
    --what tokens-per-second           target tokens of training per second
    --what depth/encoder/*/weight_1    of layers, where the training had --log-depth-interval

A panel for each combination of ``--what`` (rows) and ``--by`` (columns). Runs of the same name, such as seeds of one
system, are one curve: their mean, within the band from the least to the greatest of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from ode_transformer.analysis.curves.plot import LOGGED_BY, WHAT, LoggedRun, plot
from ode_transformer.analysis.curves.training_log import read_run
from ode_transformer.analysis.plots import check_outputs
from ode_transformer.analysis.systems import add_output_arguments
from ode_transformer.support.arguments import add_systems, system_names
from ode_transformer.support.depth_log_names import PREFIX
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import write_text
from ode_transformer.support.tables import csv_text

_FIELDS = ("split", "epoch", "updates", "epochs", "minutes", "loss", "nll_loss", "perplexity", "gnorm")
_DIGITS = {"minutes": 3, "epochs": 4, "perplexity": 4}


def write_csv(runs: Sequence[LoggedRun], path: Path) -> None:
    """Write one line per report, with the name of its run; an unknown number is an empty field."""
    layers = list(dict.fromkeys(name for run in runs for point in run.points for name in point.depth))
    rows: list[list[object]] = [["run", *_FIELDS, *layers, "log"]]
    for run in runs:
        for point in run.points:
            values = {name: getattr(point, name) for name in _FIELDS}
            for name, digits in _DIGITS.items():
                values[name] = None if values[name] is None else round(values[name], digits)
            rows.append([run.name, *values.values(), *(point.depth.get(layer) for layer in layers), run.path])
    write_text(path, csv_text(rows))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``ode-transformer analyse curves``."""
    add_systems(parser, "folder or log of a run")
    parser.add_argument(
        "--what",
        nargs="+",
        default=["loss"],
        metavar="WHAT",
        help=f"rows of the plot: {', '.join(WHAT)}, depth/encoder/*/gradient_norm, ... (default: loss)",
    )
    parser.add_argument(
        "--by", nargs="+", choices=LOGGED_BY, default=["updates", "minutes"], help="columns (default: updates minutes)"
    )
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Write the curves of the logs as a plot, a table or both."""
    if args.output is None and args.csv is None:
        raise UserError("nothing to write: give --output, --csv or both")
    for quantity in args.what:
        if quantity not in WHAT and not quantity.startswith(PREFIX):
            raise UserError(f"--what {quantity}: expected {', '.join(WHAT)} or a name that begins with {PREFIX}")
    check_outputs(args.output, args.csv)
    paths = [path for _, path in args.systems]
    runs = [LoggedRun(name, path, read_run(path)) for name, path in zip(system_names(args.systems), paths, strict=True)]
    if args.output is not None:
        plot(runs, args.output, args.what, args.by)
    if args.csv is not None:
        write_csv(runs, args.csv)
    for logged in runs:
        last_update = max(point.updates for point in logged.points)
        print(f"{logged.name}: {len(logged.points)} reports up to update {last_update}")
        if "perplexity" in args.what and any(point.nll_loss is None for point in logged.points):
            print(f"{logged.name}: no nll_loss in some reports: their perplexity is that of the loss")
    return 0
