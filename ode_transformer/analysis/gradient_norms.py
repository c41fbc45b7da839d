"""``ode-transformer gradient-norms``: how much of the loss's gradient reaches each layer of a model, trained or not.

For a stack and a layer l it is the length of the gradient of the loss, per token, with respect to all that the layer is
a function of, x_l at every position (see ``DepthScheme.carried``):

    ‖∂L/∂x_l‖₂,   L = −(1/N) Σ log p(y_t | y_<t, x)

Vanishing and exploding gradients show as a slope over l on a logarithmic axis. It does not depend on how a layer's
parameters are divided or shared, so that models of different kinds can be compared.
"""

from __future__ import annotations

import argparse
import csv
import io
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ode_transformer.analysis.layer_replacement import STACKS, LayerPlace, negative_log_likelihood, watched
from ode_transformer.analysis.plots import new_figure
from ode_transformer.arguments import positive_int
from ode_transformer.errors import UserError
from ode_transformer.evaluation.binarised import Split
from ode_transformer.evaluation.trained_model import load_trained_model
from ode_transformer.files import replacing, require_place, write_text

# stack -> ‖∂L/∂x_l‖ for l = 1, 2, …
Norms = dict[str, list[float]]


def gradient_norms(model: Any, samples: Sequence[Mapping[str, Any]], padding_idx: int) -> Norms:
    """The norms, as means over batches.

    :param model: encoder–decoder model whose stacks are ``DepthStack``; evaluation mode, so that there is no dropout
    :param samples: fairseq's batches
    """
    total: dict[str, dict[int, float]] = {stack: {} for stack in STACKS}
    seen: dict[LayerPlace, list[Tensor]] = {}

    def see(place: LayerPlace, given: Sequence[Tensor], made: Sequence[Tensor]) -> None:
        seen[place] = [tensor for tensor in given if tensor.requires_grad]

    for sample in samples:
        seen.clear()
        with watched(model, see):
            loss = negative_log_likelihood(model, sample, padding_idx)
        tensors = [tensor for given in seen.values() for tensor in given]
        gradients = iter(torch.autograd.grad(loss, tensors))
        for (stack, number), given in seen.items():
            squares = sum(float(next(gradients).double().square().sum()) for _ in given)
            total[stack][number] = total[stack].get(number, 0.0) + squares**0.5 / len(samples)
    return {stack: [norms[number] for number in sorted(norms)] for stack, norms in total.items()}


def measure(path: Path, data: Path, split: str, sentences: int) -> Norms:
    """The norms of a checkpoint on the first sentences of a binarised data set.

    :raises UserError: the checkpoint or the data cannot be read, or the model has other layers than ours
    """
    model, _, task = load_trained_model(path, data)
    if not all(hasattr(getattr(model, stack, None), "watch") for stack in STACKS):
        raise UserError(f"{path}: the layers of fairseq's class {type(model).__name__} cannot be watched")
    part = Split(model, task, data, split, path)
    samples = [part.sample(numbers) for numbers in part.batches(sentences, max_tokens=4096)]
    return gradient_norms(model, samples, task.source_dictionary.pad())


def write_csv(runs: Mapping[str, Norms], path: Path) -> None:
    """One line for each layer of each model."""
    lines = io.StringIO()
    table = csv.writer(lines, lineterminator="\n")
    table.writerow(["model", "stack", "layer", "gradient_norm"])
    for name, norms in runs.items():
        for stack in norms:
            table.writerows([name, stack, number, norm] for number, norm in enumerate(norms[stack], 1))
    write_text(path, lines.getvalue())


def plot(runs: Mapping[str, Norms], path: Path) -> None:
    """A panel for each stack, a line for each model: the norm against the layer's place, as a PNG."""
    figure = new_figure(10, 4)
    for axes, stack in zip(figure.subplots(1, 2, sharey=True), STACKS, strict=True):
        for name, norms in runs.items():
            axes.plot(range(1, len(norms[stack]) + 1), norms[stack], marker="o", markersize=3, label=name)
        axes.set_yscale("log")
        axes.set_title(stack)
        axes.set_xlabel("layer")
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("gradient norm of what the layer reads")
    figure.axes[1].legend()
    with replacing(path) as file:
        figure.savefig(file, format="png", dpi=120)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``ode-transformer gradient-norms``."""
    parser.add_argument("data", type=Path, help="directory that fairseq-preprocess wrote")
    parser.add_argument(
        "--path", type=Path, required=True, nargs="+", metavar="FILE", help="checkpoints, each a line of the plot"
    )
    parser.add_argument("--names", nargs="+", metavar="NAME", help="what to call them (default: their paths)")
    parser.add_argument("--split", default="valid", help="part of the data (default: valid)")
    parser.add_argument("--sentences", type=positive_int, default=512, help="how many at most (default: 512)")
    parser.add_argument("--output", type=Path, metavar="FILE.png", help="the plot")
    parser.add_argument("--csv", type=Path, metavar="FILE.csv", help="the numbers")


def run(args: argparse.Namespace) -> int:
    """Print, for each checkpoint and stack, the norms from the first layer to the last."""
    logging.disable(logging.INFO)  # fairseq tells how it loads; asked for are the norms
    names = args.names or [str(path) for path in args.path]
    if len(names) != len(args.path):
        raise UserError(f"--names: {len(names)} for {len(args.path)} checkpoints")
    if len(set(names)) != len(names):
        raise UserError(f"--names, --path: {next(n for n in names if names.count(n) > 1)} is named twice")
    for place in (args.output, args.csv):
        if place is not None:
            require_place(place)
    if args.output is not None:
        new_figure(1, 1)  # if there is no matplotlib, it should be known now
    runs = {
        name: measure(path, args.data, args.split, args.sentences) for name, path in zip(names, args.path, strict=True)
    }
    for name, norms in runs.items():
        for stack in STACKS:
            print(f"{name} {stack}: {' '.join(f'{norm:.2e}' for norm in norms[stack])}")
    if args.csv is not None:
        write_csv(runs, args.csv)
    if args.output is not None:
        plot(runs, args.output)
    return 0
