"""Paths of a sentence through depth: the states that several schemes reach with the same trained blocks.

Each block of a trained stack has a vector field F. A scheme Φ steps all blocks in their order, from the sentence's own
y_0; the layers, their history and what is not stepped stay as they are:

    y_{l+1} = Φ(F_l, y_l),   l = 0 … L − 1

A scheme of several stages evaluates F at further points, its stage points. Where a layer history combines earlier
states, a step starts elsewhere than the one before it ended. For a picture, states are averaged over the positions of
the sentence and projected on the plane in which all of them differ most (PCA).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ode_transformer.lab.analysis.depth.block_flows import TRAINED, recording
from ode_transformer.models.depth_stack import DepthStack
from ode_transformer.models.layer_hooks import depth_stacks, removed_afterwards, see_steps
from ode_transformer.nn import BlockId
from ode_transformer.numerics import ButcherTableau, RungeKutta, VectorField, runge_kutta_steps


@dataclass(frozen=True)
class PathStep:
    """The step over one block, averaged over positions.

    :param points: points at which the scheme evaluated F, the start of the step first, [stages, C]
    :param end: end of the step, [C]
    """

    points: Tensor
    end: Tensor


DepthPath = tuple[PathStep, ...]


@contextmanager
def _stepped_by(stack: DepthStack, tableau: ButcherTableau | None) -> Iterator[None]:
    """Let a stack step by another scheme within the block; None for the trained one."""
    owner = stack.history or stack
    trained = owner.scheme
    if tableau is not None:
        owner.scheme = RungeKutta(tableau, steps=stack.choice.steps, step_size=stack.choice.step_size)
    try:
        yield
    finally:
        owner.scheme = trained


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
        path: list[PathStep] = []

        def keep(block: BlockId, field: VectorField, y: Tensor, next_y: Tensor, padding: Tensor | None) -> None:
            evaluate, points, _ = recording(field)
            if tableau is None:
                points.append(y)
            else:
                runge_kutta_steps(evaluate, y, tableau, module.choice.steps)
            means = torch.stack([point.float().flatten(0, -2).mean(dim=0).cpu() for point in (*points, next_y)])
            path.append(PathStep(means[:-1], means[-1]))

        with _stepped_by(module, tableau), removed_afterwards(see_steps(module, keep)):
            model(**sample["net_input"])
        return tuple(path)

    return {name: path_under(tableau) for name, tableau in {TRAINED: None, **tableaus}.items()}


@dataclass(frozen=True)
class Plane:
    """The plane through the mean of some points in which they differ most.

    :param mean: [C]
    :param axes: orthonormal, [C, 2]
    :param fractions: of the points' variance along each axis
    """

    mean: Tensor
    axes: Tensor
    fractions: tuple[float, float]

    def project(self, points: Tensor) -> Tensor:
        """Return the coordinates of points, [P, C] -> [P, 2]."""
        return (points - self.mean) @ self.axes


def principal_plane(points: Tensor) -> Plane:
    """Return the plane of the first two principal components.

    :param points: [P, C], at least two of each
    """
    mean = points.mean(dim=0)
    _, values, rows = torch.linalg.svd(points - mean, full_matrices=False)
    axes = rows[:2]
    largest = axes.abs().argmax(dim=1, keepdim=True)
    axes = axes * axes.gather(1, largest).sign()  # the sign of a component is arbitrary
    total = float(values.square().sum()) or 1.0
    first, second = (float(value) ** 2 / total for value in values[:2])
    return Plane(mean, axes.T, (first, second))
