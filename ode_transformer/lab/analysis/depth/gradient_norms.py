"""``ode-transformer analyse gradient-norms``: norm of the loss's gradient at the input of each layer, of any model.

For a stack and a layer l it is the norm of the gradient of the loss, per token, with respect to all that the layer
reads, x_l at every position (see ``tensors_between``):

    ‖∂L/∂x_l‖₂,   L = −(1/N) Σ log p(y_t | y_<t, x)         without x in a language model

Vanishing and exploding gradients show as a slope over l on a logarithmic axis. The norm does not depend on how a
layer's parameters are divided or shared, so that models of different kinds can be compared.

Activation norms, for the report, are mean lengths of what a layer returns, ‖y_l‖₂, over positions without padding.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ode_transformer.lab.analysis import systems
from ode_transformer.lab.analysis.layer_replacement import negative_log_likelihood, seen_layers
from ode_transformer.lab.analysis.plots import LINE_STYLES, MARKERS, new_figure, plain_label, save_figure
from ode_transformer.models.layer_hooks import depth_stacks, removed_afterwards, see_layer_inputs
from ode_transformer.nn import LayerId
from ode_transformer.support.files import write_text
from ode_transformer.support.tables import csv_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# stack -> ‖∂L/∂x_l‖ for l = 1, 2, …
Norms = dict[str, list[float]]


def gradient_norms(model: Any, samples: Sequence[Mapping[str, Any]], padding_idx: int) -> Norms:
    """Compute the norms, as means over batches.

    :param model: a model of this package in evaluation mode, so that there is no dropout
    """
    stacks = depth_stacks(model)
    sums: dict[str, dict[int, float]] = {stack: {} for stack in stacks}
    for sample in samples:
        read: dict[LayerId, list[Tensor]] = defaultdict(list)

        def see(layer: LayerId, inputs: Sequence[Tensor], _: object, read: dict[LayerId, list[Tensor]] = read) -> None:
            read[layer] += [tensor for tensor in inputs if tensor.requires_grad]

        with removed_afterwards(handle for stack in stacks.values() for handle in see_layer_inputs(stack, see)):
            loss = negative_log_likelihood(model, sample, padding_idx)
        gradients = iter(torch.autograd.grad(loss, [tensor for inputs in read.values() for tensor in inputs]))
        for (stack, number), inputs in read.items():
            squares = sum(float(next(gradients).double().square().sum()) for _ in inputs)
            sums[stack][number] = sums[stack].get(number, 0.0) + squares**0.5 / len(samples)
    return {stack: [norms[number] for number in sorted(norms)] for stack, norms in sums.items()}


def activation_norms(model: Any, samples: Sequence[Mapping[str, Any]]) -> Norms:
    """Return the mean norm of each layer's outputs, stack by stack."""
    sums: dict[LayerId, float] = defaultdict(float)
    positions: dict[LayerId, int] = defaultdict(int)

    def see(layer: LayerId, inputs: Sequence[Tensor], outputs: Sequence[Tensor], padding: Tensor | None) -> None:
        norms = torch.stack([output.float().square().sum(dim=-1) for output in outputs]).sum(dim=0).sqrt()
        real = torch.ones_like(norms, dtype=torch.bool) if padding is None else padding.logical_not()
        sums[layer] += float(norms[real].sum())
        positions[layer] += int(real.sum())

    with seen_layers(model, see):
        systems.run_hooked(model, (), samples)
    return {
        stack: [sums[layer] / positions[layer] for layer in sorted(sums) if layer.stack == stack]
        for stack in depth_stacks(model)
    }


def draw_by_layer(axes: Axes, runs: Mapping[str, Sequence[float]]) -> None:
    """Draw a line for each model against the number of the layer, on a logarithmic axis."""
    for number, (name, norms) in enumerate(runs.items()):
        marker, style = MARKERS[number % len(MARKERS)], LINE_STYLES[number % len(LINE_STYLES)]
        label = plain_label(name)
        axes.plot(range(1, len(norms) + 1), norms, marker=marker, markersize=4, linestyle=style, label=label)
    axes.set(yscale="log", xlabel="layer", xlim=(0.5, max(map(len, runs.values())) + 0.5))
    axes.grid(alpha=0.3)
    axes.locator_params(axis="x", integer=True, min_n_ticks=1)


def plot(runs: Mapping[str, Norms], path: Path) -> None:
    """Plot the norm against the number of the layer, with a panel for each stack and a line for each model."""
    stacks = systems.stacks_among(runs.values())
    figure = new_figure(5 * len(stacks), 4)
    for axes, stack in zip(figure.subplots(1, len(stacks), sharey=True, squeeze=False)[0], stacks, strict=True):
        draw_by_layer(axes, {name: norms[stack] for name, norms in runs.items() if stack in norms})
        axes.set_title(stack)
    figure.axes[0].set_ylabel("gradient norm of what the layer reads")
    figure.axes[-1].legend()
    save_figure(figure, path)


def run(args: argparse.Namespace) -> int:
    """Print the norms of each checkpoint and stack, from the first layer to the last."""
    runs = {}
    rows: list[list[object]] = [["model", "stack", "layer", "gradient_norm"]]
    for system in systems.measured_models(args):
        runs[system.name] = gradient_norms(system.model, system.samples, system.padding_idx)
        for stack, norms in runs[system.name].items():
            print(f"{system.name} {stack}: {' '.join(f'{norm:.2e}' for norm in norms)}", flush=True)
            rows += [[system.name, stack, number, norm] for number, norm in enumerate(norms, 1)]
    if args.csv is not None:
        write_text(args.csv, csv_text(rows))
    if args.output is not None:
        plot(runs, args.output)
    return 0
