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

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ode_transformer.analysis.depth.coefficients import block_names
from ode_transformer.analysis.linear_probe.layer_replacement import real_positions, stacks_of, watched
from ode_transformer.nn import LayerHistory
from ode_transformer.numerics import (
    BlockwiseScheme,
    ButcherTableau,
    DepthState,
    Recurrence,
    RungeKutta,
    VectorField,
    runge_kutta_steps,
    solve_to_tolerance,
)

TRAINED = "as trained"  # what the model's own step is called beside the schemes

# The number of a block in its stack, its F, where its step begins and where it ends.
SeeStep = Callable[[int, VectorField, Tensor, Tensor], None]


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


class Seen(BlockwiseScheme):
    """Steps as the scheme that it stands for, and shows each step."""

    def __init__(self, scheme: RungeKutta, see: SeeStep) -> None:
        super().__init__()
        self.scheme, self.see = scheme, see

    def step_block(self, field: VectorField, depth_state: DepthState) -> DepthState:
        after = self.scheme.step_block(field, depth_state)
        self.see(depth_state.depth, field, depth_state.y, after.y)
        return after


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
    return {stack: refusal(getattr(model, stack)) for stack in stacks_of(model)}


@contextmanager
def steps_seen(stack: Any, see: SeeStep) -> Iterator[None]:
    """Within the block, ``see`` is told of each step of the stack's scheme, from what a layer history combines."""
    owner = stack.scheme if isinstance(stack.scheme, LayerHistory) else stack
    scheme = owner.scheme
    owner.scheme = Seen(scheme, see)
    try:
        yield
    finally:
        owner.scheme = scheme


@torch.no_grad()
def block_errors(
    model: Any,
    samples: Sequence[Mapping[str, Any]],
    padding_idx: int,
    tableaus: Mapping[str, ButcherTableau],
    steps: Sequence[int],
    tolerance: float,
    max_steps: int,
) -> list[BlockErrors]:
    """The errors of the blocks of all stacks that have flows, in the order of their depth.

    :param model: in evaluation mode and float64
    :param samples: fairseq's batches
    :param tableaus: schemes by the names that users give them
    :param steps: how many of them, each by itself
    :param tolerance: of the mean relative error of the solution
    :param max_steps: of the solution
    """
    at_hand: dict[str, Any] = {}
    made = {
        stack: [BlockErrors(stack, name) for name in block_names(getattr(model, stack))]
        for stack, reason in refusals(model).items()
        if reason is None
    }

    def see(stack: str) -> SeeStep:
        def measure(number: int, f: VectorField, y0: Tensor, stepped: Tensor) -> None:
            real = real_positions(at_hand, stack, y0, padding_idx)

            def lengths(difference: Tensor) -> Tensor:
                return difference[real].norm(dim=-1)

            def distance(approximate: Tensor, better: Tensor) -> float:
                return float(relative(lengths(approximate - better), lengths(better - y0)).mean())

            exact = solve_to_tolerance(f, y0, tolerance, distance=distance, max_steps=max_steps)
            found = {Method(TRAINED, own_steps[stack]): stepped} | {
                Method(name, count): runge_kutta_steps(f, y0, tableau, count)
                for name, tableau in tableaus.items()
                for count in steps
            }
            errors = {method: lengths(y - exact.y) for method, y in found.items()}
            made[stack][number].add(errors, lengths(exact.y - y0), exact.steps, exact.bound)

        return measure

    own_steps = {stack: getattr(model, stack).choice.steps for stack in made}
    with ExitStack() as within:
        within.enter_context(watched(model, lambda *_: None))  # what is watched is not divided: a grid is seen whole
        for stack in made:
            within.enter_context(steps_seen(getattr(model, stack), see(stack)))
        for sample in samples:
            at_hand.update(sample["net_input"])
            model(**sample["net_input"])
    return [errors for blocks in made.values() for errors in blocks]
