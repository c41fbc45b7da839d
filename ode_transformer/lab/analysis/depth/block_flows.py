"""Truncation errors: the distance between a step of a trained model and the exact flow of the block that it steps.

A block's F, with the trained parameters, and its input y_0 on real data define a problem

    y' = F(y),   y(0) = y_0,   t from 0 to 1

whose solution y(1) a step of size 1 approximates by y_1. The errors are means over positions that are not padding:

    relative error   ‖y_1 − y(1)‖ / ‖y(1) − y_0‖
    absolute error   ‖y_1 − y(1)‖

Attention couples positions, so that a batch is one system of equations. y_0 comes from the trained model's own steps in
the layers below, so that their errors do not add up.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ode_transformer.lab.analysis.systems import run_hooked
from ode_transformer.models.layer_hooks import SeeStep, depth_stacks, see_steps
from ode_transformer.nn import BlockId, DepthChoice
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


@dataclass
class BlockErrors:
    """Errors of one block, as sums over positions.

    :param distance: Σ ‖y(1) − y_0‖
    :param steps: largest number of steps that a solution took
    :param bound: Σ of bounds of the solution's relative error, see :class:`ode_transformer.numerics.Reference`
    :param sums: sums of the relative and the absolute errors of each method, [2]
    """

    stack: str
    block: str
    positions: int = 0
    distance: float = 0.0
    steps: int = 0
    bound: float = 0.0
    sums: dict[Method, Tensor] = field(default_factory=dict)

    def add(self, errors: Mapping[Method, Tensor], distances: Tensor, steps: int, bound: float) -> None:
        """Add the positions of one batch.

        :param errors: ‖y_1 − y(1)‖ of each method, [P]
        :param distances: ‖y(1) − y_0‖, [P]
        :param bound: bound of the mean relative error of y(1)
        """
        self.positions += len(distances)
        self.distance += float(distances.sum())
        self.steps = max(self.steps, steps)
        self.bound += bound * len(distances)
        for method, absolute in errors.items():
            sums = torch.stack([relative_errors(absolute, distances).sum(), absolute.sum()])
            self.sums[method] = self.sums.get(method, torch.zeros_like(sums)) + sums

    def mean(self, method: Method) -> tuple[float, float]:
        """Return the mean relative and the mean absolute error."""
        relative, absolute = (self.sums[method] / self.positions).tolist()
        return relative, absolute

    @property
    def reference_bound(self) -> float:
        """Bound of the relative error of the solution itself."""
        return self.bound / self.positions


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


def blocks_with_flows(model: Any) -> dict[BlockId, DepthChoice]:
    """Return the blocks of all stacks that have flows, in the order of their depth, each with its stack's choice."""
    reasons = refusals(model)
    if None not in reasons.values():
        raise UserError("nothing to measure: " + ", ".join(f"{stack}: {reason}" for stack, reason in reasons.items()))
    return {
        block: stack.choice
        for name, stack in depth_stacks(model).items()
        if reasons[name] is None
        for block in stack.stepped_blocks
    }


def run_steps(model: Any, see: SeeStep, samples: Iterable[Mapping[str, Any]]) -> None:
    """Run batches through a model and call ``see`` with each step of the blocks that have flows, see ``see_steps``."""
    stacks, reasons = depth_stacks(model), refusals(model)
    handles = [h for name, stack in stacks.items() if reasons[name] is None for h in see_steps(stack, see)]
    run_hooked(model, handles, samples)


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
    own_steps = {block: choice.steps for block, choice in blocks_with_flows(model).items()}
    measured = {block: BlockErrors(block.stack, str(block)) for block in own_steps}

    def see(block: BlockId, field: VectorField, y: Tensor, next_y: Tensor, padding: Tensor | None) -> None:
        assert padding is not None
        real = padding.logical_not()

        def lengths(difference: Tensor) -> Tensor:
            return difference[real].norm(dim=-1)

        def distance(approximate: Tensor, better: Tensor) -> float:
            return float(relative_errors(lengths(approximate - better), lengths(better - y)).mean())

        solution = solve_to_tolerance(field, y, tolerance, distance=distance, max_steps=max_steps)
        ends = {Method(TRAINED, own_steps[block]): next_y} | {
            Method(name, count): runge_kutta_steps(field, y, tableau, count)
            for name, tableau in tableaus.items()
            for count in steps
        }
        errors = {method: lengths(end - solution.y) for method, end in ends.items()}
        measured[block].add(errors, lengths(solution.y - y), solution.steps, solution.bound)

    run_steps(model, see, samples)
    return list(measured.values())
