"""Paths of a sentence through depth: the states that several schemes reach with the same trained blocks.

Each block of a trained stack has a vector field F. A scheme Φ steps all blocks in their order, from the sentence's own
y_0; the layers, their history and what is not stepped stay as they are:

    y_{l+1} = Φ(F_l, y_l),   l = 0 … L − 1

A scheme of several stages evaluates F at further points, its stage points. Where a layer history combines earlier
states, a step starts elsewhere than the one before it ended. For a picture, states are averaged over the positions of
the sentence and projected on the plane in which all of them differ most (PCA).
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ode_transformer.lab.analysis.depth.block_flows import TRAINED, recording
from ode_transformer.models.layer_hooks import depth_stacks, removed_afterwards, see_steps
from ode_transformer.nn import BlockId
from ode_transformer.numerics import ButcherTableau, VectorField, runge_kutta_steps

# The step over each block: the points at which the scheme evaluated F, from the start of the step on, and its end, as
# means over the positions, [stages + 1, C]
DepthPath = list[Tensor]


@torch.no_grad()
def depth_paths(
    model: Any, stack: str, sample: Mapping[str, Any], tableaus: Mapping[str, ButcherTableau]
) -> dict[str, DepthPath]:
    """Return the model's own path of a sentence as ``TRAINED``, and its path under each scheme.

    :param model: in evaluation mode
    :param stack: name of a stack that ``block_flows.refusals`` accepts
    :param sample: fairseq's batch of a single sentence, so that nothing is padding
    """
    module = depth_stacks(model)[stack]

    def path_under(tableau: ButcherTableau | None) -> DepthPath:
        path: DepthPath = []

        def step(block: BlockId, field: VectorField, y: Tensor, next_y: Tensor, padding: Tensor | None) -> Tensor:
            evaluate, points, _ = recording(field)
            if tableau is None:
                points.append(y)
            else:
                next_y = runge_kutta_steps(evaluate, y, tableau, module.choice.steps)
            path.append(torch.stack([point.float().flatten(0, -2).mean(dim=0).cpu() for point in (*points, next_y)]))
            return next_y

        with removed_afterwards(see_steps(module, step)):
            model(**sample["net_input"])
        return path

    return {name: path_under(tableau) for name, tableau in {TRAINED: None, **tableaus}.items()}


def principal_coordinates(points: Tensor) -> tuple[Tensor, list[float]]:
    """Return the coordinates of points in the plane in which they differ most, [P, 2], and each axis' part of that.

    :param points: [P, C], at least two of each
    :return: also the fractions of the points' variance along the first and the second axis
    """
    centred = points - points.mean(dim=0)
    _, values, rows = torch.linalg.svd(centred, full_matrices=False)
    axes = rows[:2]
    largest = axes.abs().argmax(dim=1, keepdim=True)
    axes = axes * axes.gather(1, largest).sign()  # the sign of a component is arbitrary
    total = float(values.square().sum()) or 1.0
    return centred @ axes.T, [float(value) ** 2 / total for value in values[:2]]
