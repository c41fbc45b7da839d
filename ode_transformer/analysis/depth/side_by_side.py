"""What commands have in common that measure several checkpoints on one part of a binarised data set."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from ode_transformer.analysis.plots import new_figure
from ode_transformer.decoding.binarised import Split
from ode_transformer.decoding.trained_model import load_trained_model
from ode_transformer.nn.observers import STACKS, observable_stacks
from ode_transformer.support.arguments import positive_int
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import check_writable


def add_arguments(parser: argparse.ArgumentParser, sentences: int) -> None:
    """Declare which checkpoints, which data, how many ``sentences`` by default, and where to write."""
    parser.add_argument("data", type=Path, help="directory that fairseq-preprocess wrote")
    parser.add_argument("--path", type=Path, required=True, nargs="+", metavar="FILE", help="checkpoints")
    parser.add_argument("--names", nargs="+", metavar="NAME", help="what to call them (default: their paths)")
    parser.add_argument("--split", default="valid", help="part of the data (default: valid)")
    parser.add_argument(
        "--sentences",
        type=positive_int,
        default=sentences,
        help=f"how many at most; of a language model, samples (default: {sentences})",
    )
    parser.add_argument("--output", type=Path, metavar="FILE.png", help="the plot")
    parser.add_argument("--csv", type=Path, metavar="FILE.csv", help="the numbers")


def named_paths(args: argparse.Namespace) -> dict[str, Path]:
    """The checkpoints by name, after it has been seen that names, plot and table can be had.

    :raises UserError: one of them cannot
    :raises OSError: a checkpoint cannot be opened
    """
    names = args.names or [str(path) for path in args.path]
    if len(names) != len(args.path):
        raise UserError(f"--names: {len(names)} for {len(args.path)} checkpoints")
    if len(set(names)) != len(names):
        raise UserError(f"--names, --path: {next(n for n in names if names.count(n) > 1)} is named twice")
    for path in args.path:
        path.open("rb").close()  # one that is missing should be known before others are measured
    for place in (args.output, args.csv):
        if place is not None:
            check_writable(place)
    if args.output is not None:
        new_figure(1, 1)  # if there is no matplotlib, it should be known now
    return dict(zip(names, args.path, strict=True))


def load(path: Path, args: argparse.Namespace) -> tuple[Any, list[dict[str, Any]], int]:
    """A model, fairseq's batches of the sentences to measure it on, and the number of the padding symbol.

    :raises UserError: the checkpoint or the data cannot be read, or the model has other layers than ours
    """
    model, _, task = load_trained_model(path, args.data, language_model=True)
    if not observable_stacks(model):
        raise UserError(f"{path}: the layers of fairseq's class {type(model).__name__} cannot be observed")
    part = Split(model, task, args.data, args.split, path)
    samples = [part.sample(numbers) for numbers in part.batches(args.sentences, max_tokens=4096)]
    return model, samples, task.source_dictionary.pad()


def stacks_among(runs: Iterable[Collection[str]]) -> list[str]:
    """The stacks that one of several models has, each given by its stacks, in the order of ``STACKS``."""
    known = {stack for run in runs for stack in run}
    return [stack for stack in STACKS if stack in known]
