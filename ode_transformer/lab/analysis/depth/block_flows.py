"""Blocks of a trained model as problems: truncation errors of their steps, and paths of a sentence through them.

A block's F, with the trained parameters, and its input y_0 on real data define a problem

    y' = F(y),   y(0) = y_0,   t from 0 to 1

whose solution y(1) a step of size 1 approximates by y_1. The errors are means over positions that are not padding:

    relative error   ‖y_1 − y(1)‖ / ‖y(1) − y_0‖
    absolute error   ‖y_1 − y(1)‖

Attention couples positions, so that a batch is one system of equations. y_0 comes from the trained model's own steps in
the layers below, so that their errors do not add up.

On a path, a scheme Φ steps all blocks in turn, from the sentence's own y_0: y_{l+1} = Φ(F_l, y_l). The layers, their
history and what is not stepped stay as they are; a history lets a step start elsewhere than the one before it ended.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ode_transformer.decoding.teacher_forcing import forward_pass
from ode_transformer.lab.analysis.systems import Samples, measure_positions
from ode_transformer.nn import BlockId, DepthChoice
from ode_transformer.nn.layer_hooks import depth_stacks, removed_afterwards, see_steps
from ode_transformer.numerics import ButcherTableau, Recurrence, VectorField, runge_kutta_steps, solve_to_tolerance
from ode_transformer.support.errors import UserError

TRAINED = "as trained"  # label of the model's own step beside the schemes


def recording(field: VectorField) -> tuple[VectorField, list[Tensor], list[Tensor]]:
    """Return a field that keeps where it is evaluated and its values, and the lists of both, empty at first."""
    points: list[Tensor] = []
    values: list[Tensor] = []

    def evaluate(point: Tensor) -> Tensor:
        points.append(point)
        values.append(field(point))
        return values[-1]

    return evaluate, points, values


class Method(NamedTuple):
    """A method that computes y_1 from y_0.

    :param scheme: name of a tableau, or ``TRAINED``
    :param steps: number of steps, of size 1 / steps each
    """

    scheme: str
    steps: int


@dataclass(frozen=True)
class BlockErrors:
    """Errors of one block, means over positions.

    :param distance: ‖y(1) − y_0‖
    :param steps: largest number of steps that a solution took
    :param bound: upper bound of the solution's own relative error, see :class:`ode_transformer.numerics.Reference`
    :param errors: relative and absolute error of each method, the model's own step first
    """

    stack: str
    block: str
    positions: int
    distance: float
    steps: int
    bound: float
    errors: dict[Method, tuple[float, float]]

    @property
    def trained(self) -> Method:
        return next(iter(self.errors))


def relative_errors(errors: Tensor, distances: Tensor) -> Tensor:
    """Divide errors by distances; an error of 0 over a distance of 0 is 0."""
    return errors / distances.clamp_min(torch.finfo(distances.dtype).tiny)


def refusals(model: Any) -> dict[str, str | None]:
    """Return for each stack of a model the reason why its blocks have no flow; None if they have one."""

    def refusal(choice: DepthChoice) -> str | None:
        if choice.is_lstm:
            return "a depth-wise LSTM steps no F"
        if isinstance(choice.rule, Recurrence):
            return f"scheme '{choice.scheme}' is an equation in several layers, no step of y' = F(y)"
        if choice.function != "increment":
            return f"--ode-function {choice.function} steps the output of a layer, which is no rate of change"
        return "with separate stage parameters each stage has another F" if choice.copies > 1 else None

    return {name: refusal(stack.choice) for name, stack in depth_stacks(model).items()}


def measure_flows(model: Any, samples: Samples, measure: Callable[..., Iterable[Tensor]]) -> dict[BlockId, Tensor]:
    """Measure the blocks that have flows, in the order of their depth, see ``measure_positions`` and ``see_steps``."""
    reasons = refusals(model)
    if None not in reasons.values():
        raise UserError("nothing to measure: " + ", ".join(f"{stack}: {reason}" for stack, reason in reasons.items()))
    return measure_positions(
        model, samples, lambda stack, see: () if reasons[stack.stack] else see_steps(stack, see), measure
    )


def block_errors(
    model: Any,
    samples: Sequence[Mapping[str, Any]],
    tableaus: Mapping[str, ButcherTableau],
    steps: Sequence[int],
    tolerance: float,
    max_steps: int,
) -> list[BlockErrors]:
    """Measure the errors of the blocks of all stacks that have flows, in the order of their depth.

    :param model: in evaluation mode and float64
    :param steps: numbers of steps, each measured by itself
    :param tolerance: mean relative error of the solution at most
    :param max_steps: steps that the solution may take
    """

    def measure(block: BlockId, field: VectorField, y: Tensor, next_y: Tensor, padding: Tensor) -> list[Tensor]:
        def distance(approximate: Tensor, better: Tensor) -> float:
            errors = relative_errors((approximate - better).norm(dim=-1), (better - y).norm(dim=-1))
            return float(errors[padding.logical_not()].mean())

        solution = solve_to_tolerance(field, y, tolerance, distance=distance, max_steps=max_steps)
        ends = [next_y, *(runge_kutta_steps(field, y, tableau, n) for tableau in tableaus.values() for n in steps)]
        about_solution = [y.new_tensor(float(number)) for number in (solution.steps, solution.bound)]
        return [*about_solution, *((solution.y - other).norm(dim=-1) for other in (y, *ends))]

    result = []
    for block, (used_steps, bounds, distances, *errors) in measure_flows(model, samples, measure).items():
        trained = Method(TRAINED, depth_stacks(model)[block.stack].choice.steps)
        methods = [trained, *(Method(name, count) for name in tableaus for count in steps)]
        means = {
            method: (float(relative_errors(absolute, distances).mean()), float(absolute.mean()))
            for method, absolute in zip(methods, errors, strict=True)
        }
        numbers = len(distances), float(distances.mean()), int(used_steps.max()), float(bounds.mean())
        result.append(BlockErrors(block.stack, str(block), *numbers, means))
    return result


# The step over each block: the points at which the scheme evaluated F, from the start of the step on, and its end, as
# means over the positions, [stages + 1, C]
DepthPath = list[Tensor]


@torch.no_grad()
def depth_paths(
    model: Any, stack: str, sample: Mapping[str, Any], tableaus: Mapping[str, ButcherTableau]
) -> dict[str, DepthPath]:
    """Return the model's own path of a sentence as ``TRAINED``, and its path under each scheme.

    :param model: in evaluation mode
    :param stack: name of a stack that :func:`refusals` accepts
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
            forward_pass(model, sample["net_input"])
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
