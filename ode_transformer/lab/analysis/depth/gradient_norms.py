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
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ode_transformer.lab.analysis import plots, systems
from ode_transformer.lab.analysis.layer_replacement import negative_log_likelihood, see_layers
from ode_transformer.nn import LayerId
from ode_transformer.nn.layer_hooks import depth_stacks, removed_afterwards, see_layer_inputs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Norms = dict[str, list[float]]  # of the layers of each stack


def gradient_norms(model: Any, samples: Sequence[Mapping[str, Any]]) -> Norms:
    """Compute the norms, as means over batches.

    :param model: a model of this package in evaluation mode, so that there is no dropout
    """
    stacks = depth_stacks(model)
    norms: dict[LayerId, float] = defaultdict(float)
    for sample in samples:
        read: dict[LayerId, list[Tensor]] = defaultdict(list)

        def see(layer: LayerId, inputs: Sequence[Tensor], _: object, read: dict[LayerId, list[Tensor]] = read) -> None:
            read[layer] += [tensor for tensor in inputs if tensor.requires_grad]

        with removed_afterwards(handle for stack in stacks.values() for handle in see_layer_inputs(stack, see)):
            loss = negative_log_likelihood(model, sample)
        gradients = iter(torch.autograd.grad(loss, [tensor for inputs in read.values() for tensor in inputs]))
        for layer, inputs in read.items():
            squares = sum(float(next(gradients).double().square().sum()) for _ in inputs)
            norms[layer] += squares**0.5 / len(samples)
    return _by_stack(model, norms)


def activation_norms(model: Any, samples: Sequence[Mapping[str, Any]]) -> Norms:
    """Return the mean norm of each layer's outputs, stack by stack."""

    def measure(layer: LayerId, inputs: Sequence[Tensor], outputs: Sequence[Tensor], padding: Tensor) -> list[Tensor]:
        return [torch.cat(list(outputs), dim=-1).double().norm(dim=-1)]

    measured = systems.measure_positions(model, samples, see_layers, measure)
    return _by_stack(model, {layer: float(norms.mean()) for layer, norms in measured.items()})


def _by_stack(model: Any, norms: Mapping[LayerId, float]) -> Norms:
    return {stack: [norms[layer] for layer in sorted(norms) if layer.stack == stack] for stack in depth_stacks(model)}


def draw_by_layer(axes: Axes, stack: str, runs: Mapping[str, Norms]) -> None:
    """Draw a line for each model that has the stack against the number of the layer, on a logarithmic axis."""
    lines = {name: norms[stack] for name, norms in runs.items() if stack in norms}
    for number, (name, norms) in enumerate(lines.items()):
        marker, style = plots.MARKERS[number % len(plots.MARKERS)], plots.LINE_STYLES[number % len(plots.LINE_STYLES)]
        label = plots.plain_label(name)
        axes.plot(range(1, len(norms) + 1), norms, marker=marker, markersize=4, linestyle=style, label=label)
    plots.set_depth_axes(axes, "layer", max(map(len, lines.values())))


def run(args: argparse.Namespace) -> None:
    """Print the norms of each checkpoint and stack, from the first layer to the last."""
    runs = {}
    rows: list[list[object]] = [["model", "stack", "layer", "gradient_norm"]]
    for name, model, samples in systems.measured_models(args):
        runs[name] = gradient_norms(model, samples)
        for stack, norms in runs[name].items():
            print(f"{name} {stack}: {' '.join(f'{norm:.2e}' for norm in norms)}", flush=True)
            rows += [[name, stack, number, norm] for number, norm in enumerate(norms, 1)]
    plots.write_csv(args.csv, rows)
    if args.output is not None:
        draw, label = partial(draw_by_layer, runs=runs), "gradient norm of what the layer reads"
        plots.plot_stacks(args.output, systems.stacks_among(runs.values()), draw, label, width=5)
