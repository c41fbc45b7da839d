"""How far the steps of a trained model are from the flows of its own blocks.

A block's F, with the parameters that were trained, and what the block reads on real data, y_0, make a problem

    y' = F(y),   y(0) = y_0,   t from 0 to 1

whose solution y(1) one step of size 1 is to meet with y_1. Averaged over the positions that are not padding:

    relative error   ‖y_1 − y(1)‖ / ‖y(1) − y_0‖,  the length of what the block adds being 1
    absolute error   ‖y_1 − y(1)‖

By its attention F couples positions, so that a batch is one system of equations. y_0 is what the trained model's own
steps lead to: errors of earlier layers are not in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ode_transformer.nn.observers import BlockId, LayerObserver, observable_stacks, observing
from ode_transformer.numerics import (
    ButcherTableau,
    Recurrence,
    VectorField,
    runge_kutta_steps,
    solve_to_tolerance,
)

TRAINED = "as trained"  # what the model's own step is called beside the schemes


class Method(NamedTuple):
    """A way from y_0 to y_1.

    :param scheme: name of a tableau, or ``TRAINED``
    :param steps: of size 1 / steps each
    """

    scheme: str
    steps: int


@dataclass
class BlockErrors:
    """Sums over positions, for one block.

    :param stack: ``encoder`` or ``decoder``
    :param block: such as ``encoder layer 1``
    :param positions: how many
    :param moved: Σ ‖y(1) − y_0‖
    :param steps: the most that the solution took
    :param bound: Σ of its relative error at most, see :class:`ode_transformer.numerics.Reference`
    """

    stack: str
    block: str
    positions: int = 0
    moved: float = 0.0
    steps: int = 0
    bound: float = 0.0
    sums: dict[Method, Tensor] = field(default_factory=dict)  # of the relative and the absolute errors, [2]

    def add(self, found: Mapping[Method, Tensor], moved: Tensor, steps: int, bound: float) -> None:
        """One batch.

        :param found: errors ‖y_1 − y(1)‖ of its real positions, [P]
        :param moved: ‖y(1) − y_0‖, [P]
        :param bound: of the mean relative error of y(1)
        """
        self.positions += len(moved)
        self.moved += float(moved.sum())
        self.steps = max(self.steps, steps)
        self.bound += bound * len(moved)
        for method, errors in found.items():
            sums = torch.stack([relative(errors, moved).sum(), errors.sum()])
            self.sums[method] = self.sums.get(method, torch.zeros_like(sums)) + sums

    def mean(self, method: Method) -> tuple[float, float]:
        """Relative and absolute error."""
        of_the_way, absolute = (self.sums[method] / self.positions).tolist()
        return of_the_way, absolute

    @property
    def reference_bound(self) -> float:
        """The relative error of the solution itself is at most this."""
        return self.bound / self.positions


def relative(errors: Tensor, moved: Tensor) -> Tensor:
    """Errors in units of the way; where nothing moves, no error is 0."""
    return errors / moved.clamp_min(torch.finfo(moved.dtype).tiny)


def refusal(stack: Any) -> str | None:
    """Why the blocks of a stack have no flow; None if they have."""
    if stack.choice.is_lstm:
        return "a depth-wise LSTM steps no F"
    if isinstance(stack.choice.rule, Recurrence):
        return f"scheme '{stack.choice.scheme}' is an equation in several layers, no step of y' = F(y)"
    if stack.choice.function != "increment":
        return f"--ode-function {stack.choice.function} steps the output of a layer, which is no rate of change"
    if stack.choice.copies > 1:
        return "with separate stage parameters each stage has another F"
    return None


def refusals(model: Any) -> dict[str, str | None]:
    """:func:`refusal` of each stack of a model."""
    return {name: refusal(stack) for name, stack in observable_stacks(model).items()}


class _FlowErrorsObserver(LayerObserver):
    """Measures each step of the observed blocks against the solution of y' = F(y).

    :param blocks: the blocks to measure, with the steps that the trained model makes over each
    """

    def __init__(
        self,
        blocks: Mapping[BlockId, int],
        tableaus: Mapping[str, ButcherTableau],
        steps: Sequence[int],
        tolerance: float,
        max_steps: int,
    ) -> None:
        self.own_steps, self.tableaus, self.steps = blocks, tableaus, steps
        self.tolerance, self.max_steps = tolerance, max_steps
        self.errors = {block: BlockErrors(block.stack, str(block)) for block in blocks}

    def see_step(self, block: BlockId, field: VectorField, y: Tensor, next_y: Tensor, padding: Tensor | None) -> None:
        if block not in self.errors:
            return
        assert padding is not None
        real = padding.logical_not()

        def lengths(difference: Tensor) -> Tensor:
            return difference[real].norm(dim=-1)

        def distance(approximate: Tensor, better: Tensor) -> float:
            return float(relative(lengths(approximate - better), lengths(better - y)).mean())

        solution = solve_to_tolerance(field, y, self.tolerance, distance=distance, max_steps=self.max_steps)
        ends = {Method(TRAINED, self.own_steps[block]): next_y} | {
            Method(name, count): runge_kutta_steps(field, y, tableau, count)
            for name, tableau in self.tableaus.items()
            for count in self.steps
        }
        errors = {method: lengths(end - solution.y) for method, end in ends.items()}
        self.errors[block].add(errors, lengths(solution.y - y), solution.steps, solution.bound)


@torch.no_grad()
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
    :param samples: fairseq's batches
    :param tableaus: schemes by the names that users give them
    :param steps: numbers of steps, each measured by itself
    :param tolerance: mean relative error of the solution at most
    :param max_steps: steps that the solution may take
    """
    blocks = {
        block: stack.choice.steps
        for name, stack in observable_stacks(model).items()
        if refusal(stack) is None
        for block in stack.stepped_blocks
    }
    observer = _FlowErrorsObserver(blocks, tableaus, steps, tolerance, max_steps)
    with observing(model, observer):
        for sample in samples:
            model(**sample["net_input"])
    return list(observer.errors.values())
