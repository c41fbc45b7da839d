"""Options and data of commands that measure several checkpoints on the same split of a binarised data set."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from ode_transformer.analysis.plots import add_plot_argument, check_outputs
from ode_transformer.decoding.binarised import Split
from ode_transformer.decoding.trained_model import load_trained_model
from ode_transformer.nn.observers import STACKS, observable_stacks
from ode_transformer.support.arguments import positive_int
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import open_input


def add_arguments(parser: argparse.ArgumentParser, sentences: int, plot: bool = True) -> None:
    """Declare the options: checkpoints, data, and files to write.

    :param sentences: default of ``--sentences``
    :param plot: the command can draw
    """
    parser.add_argument("data", type=Path, help="directory that fairseq-preprocess wrote")
    parser.add_argument("--path", type=Path, required=True, nargs="+", metavar="FILE", help="checkpoints")
    parser.add_argument("--names", nargs="+", metavar="NAME", help="names of the checkpoints (default: their paths)")
    parser.add_argument("--split", default="valid", help="split of the data (default: valid)")
    parser.add_argument(
        "--sentences",
        type=positive_int,
        default=sentences,
        help=f"number of sentences at most; of a language model, samples (default: {sentences})",
    )
    if plot:
        add_plot_argument(parser)
    else:
        parser.set_defaults(output=None)
    parser.add_argument("--csv", type=Path, metavar="FILE.csv", help="write the numbers")


def named_paths(args: argparse.Namespace) -> dict[str, Path]:
    """Return the checkpoints by name; check first that all files can be read or written.

    :raises UserError: the names do not fit the checkpoints, or the plot or the table cannot be written
    :raises OSError: a checkpoint cannot be opened
    """
    names = args.names or [str(path) for path in args.path]
    if len(names) != len(args.path):
        raise UserError(f"--names: {len(names)} for {len(args.path)} checkpoints")
    if len(set(names)) != len(names):
        raise UserError(f"--names, --path: {next(n for n in names if names.count(n) > 1)} is named twice")
    for path in args.path:
        open_input(path).close()  # fails now, not after the others have been measured
    check_outputs(args.output, args.csv)
    return dict(zip(names, args.path, strict=True))


def load_model_and_samples(
    path: Path, data: Path, split_name: str, sentences: int
) -> tuple[Any, list[dict[str, Any]], int]:
    """Load a model and the sentences to measure it on; return it, fairseq's batches, and the padding index.

    :param sentences: the first of the split, at most
    :raises UserError: the checkpoint or the data cannot be read, or the model is not of this package
    """
    model, _, task = load_trained_model(path, data, language_model=True)
    if not observable_stacks(model):
        raise UserError(f"{path}: the layers of fairseq's class {type(model).__name__} cannot be observed")
    split = Split(model, task, data, split_name, path)
    samples = [split.sample(numbers) for numbers in split.batches(sentences, max_tokens=4096)]
    return model, samples, task.source_dictionary.pad()


def stacks_among(runs: Iterable[Collection[str]]) -> list[str]:
    """Return the stacks that at least one model has, in the order of ``STACKS``.

    :param runs: names of the stacks of each model
    """
    names = {stack for run in runs for stack in run}
    return [stack for stack in STACKS if stack in names]
