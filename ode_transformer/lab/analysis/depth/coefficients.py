"""``ode-transformer analyse coefficients``: the weights of a trained model's stages, averaged over positions.

Schemes that combine earlier layers have weights that depend on no position: k of ``multistep``, W of
``dlcl-increments``, W and W' of the predictor–corrector schemes, whose stages have weights beside them, and γ, β and μ
of the schemes with momentum.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ode_transformer.lab.analysis.systems import Samples, measure_positions, measured_models
from ode_transformer.nn import BlockId
from ode_transformer.nn.layer_hooks import depth_stacks, see_stage_weights
from ode_transformer.numerics import Weight


@dataclass(frozen=True)
class StageWeights:
    """Mean and standard deviation of a block's weights: of γ_i over positions, a recurrence's over channels.

    :param block: such as ``encoder layer 1``, or ``encoder layer 1 ffn`` where sub-layers are stepped one by one;
        with ``, earlier layers`` for a recurrence's weights beside those of stages
    :param mean: one number for each stage, or for each weight of a recurrence's equation
    """

    block: str
    mean: tuple[float, ...]
    deviation: tuple[float, ...]


def recorded_weights(model: Any, samples: Samples) -> dict[BlockId, Tensor]:
    """Run batches; return the stage weights in all steps of a block at positions without padding, [stages, N]."""

    def measure(block: BlockId, weights: Sequence[Weight], padding: Tensor) -> list[Tensor]:
        rows = [torch.as_tensor(weight).float() for weight in weights]
        return [row.squeeze(-1) if row.dim() > 1 else row for row in rows]

    return measure_positions(model, samples, see_stage_weights, measure)


@torch.no_grad()
def stage_weights(model: Any, samples: Sequence[Mapping[str, Any]]) -> list[StageWeights]:
    """Run batches through the model and average the weights of all stacks that have any.

    :param model: a model of this package in evaluation mode
    """
    recorded, result = recorded_weights(model, samples), []
    for stack in depth_stacks(model).values():
        for number, block in enumerate(stack.stepped_blocks):
            of_scheme = [weight.float().cpu().reshape(-1) for weight in stack.depth_scheme.weights(number)]
            own_rows = torch.stack(of_scheme) if of_scheme else torch.empty(0, 1)
            rows = {str(block): own_rows}
            if block in recorded:
                rows = {str(block): recorded[block], f"{block}, earlier layers": own_rows}
            for name, weights in rows.items():
                if len(weights):
                    mean, deviation = weights.mean(dim=1), weights.std(dim=1, correction=0)
                    result.append(StageWeights(name, tuple(mean.tolist()), tuple(deviation.tolist())))
    return result


def table(rows: list[StageWeights]) -> str:
    """Return one line for each block, or one line if nothing is weighed."""
    if not rows:
        return "every layer has one stage without a learned weight: there is nothing to show"
    lines = []
    for row in rows:
        weights = "  ".join(f"{m:.3f} ± {d:.3f}" for m, d in zip(row.mean, row.deviation, strict=True))
        lines.append(f"{row.block}:  {weights}")
    return "\n".join(lines)


def run(args: argparse.Namespace) -> None:
    """Print mean ± standard deviation of each weight, block by block."""
    for name, model, samples in measured_models(args):
        weights = table(stage_weights(model, samples))
        print(weights if len(args.systems) == 1 else f"{name}:\n{weights}", flush=True)
