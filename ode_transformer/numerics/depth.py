"""The depth protocol: how a representation moves through a stack of layers.

A scheme takes a start y_0 and the layers one by one:

    depth_state = scheme.start(y_0)
    depth_state = scheme.step(layer, depth_state)      for each layer
    y_L         = scheme.finish(depth_state)

A layer is a list of blocks, vector fields that act in turn: one for a whole Transformer layer, or one for each
sub-layer. One-step schemes pass on only y; a scheme that reads earlier states keeps them in the ``memory`` of
:class:`DepthState`, or in its own subclass.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from torch import Tensor, nn

from ode_transformer.numerics.runge_kutta import VectorField, Weight, runge_kutta_steps
from ode_transformer.numerics.tableau import ButcherTableau


@dataclass(frozen=True)
class Block:
    """Part of a layer.

    :param field: vector field f of y' = f(y) if the block is stepped; otherwise the map from y to the next y
    :param stepped: a scheme steps the block; otherwise it is applied directly
    :param sum: the map y + f(y), where it takes fewer operators than f and a sum
    """

    field: VectorField
    stepped: bool = True
    sum: VectorField | None = None


@dataclass(frozen=True)
class DepthState:
    """State between two layers.

    :param y: input of the next layer, [.., dim]
    :param depth: number of blocks that have been stepped
    :param memory: what the next layer reads beside y, each [.., dim]
    """

    y: Tensor
    depth: int = 0
    memory: tuple[Tensor, ...] = ()


class DepthScheme(nn.Module, ABC):
    """Base of all schemes; a subclass defines :meth:`step` and, with a state of its own, :meth:`start`."""

    def start(self, y0: Tensor) -> DepthState:
        """Return the state below the first layer."""
        return DepthState(y0)

    @abstractmethod
    def step(self, layer: Sequence[Block], depth_state: DepthState) -> DepthState:
        """Return the state after one layer."""

    def finish(self, depth_state: DepthState) -> Tensor:
        """Return y_L, the output of the stack."""
        return depth_state.y

    def layer_inputs(self, depth_state: DepthState) -> tuple[Tensor, ...]:
        """Return the inputs of the next layer as a function: y, then its scheme's memory, each [.., dim]."""
        return (depth_state.y, *depth_state.memory)

    def layer_outputs(self, depth_state: DepthState) -> tuple[Tensor, ...]:
        """Return the values of the last layer as a function of its :meth:`layer_inputs`, each [.., dim]."""
        return self.layer_inputs(depth_state)

    def skip_layer(self, outputs: Sequence[Tensor], layer: Sequence[Block], depth_state: DepthState) -> DepthState:
        """Continue as if ``layer`` had returned ``outputs``, in the order of :meth:`layer_outputs`."""
        depth = depth_state.depth + sum(block.stepped for block in layer)
        return replace(depth_state, y=outputs[0], depth=depth, memory=tuple(outputs[1:]))

    def integrate(self, fields: Iterable[VectorField], y0: Tensor) -> Tensor:
        """Step ``y0`` through layers of one block each, and return y_L."""
        depth_state = self.start(y0)
        for field in fields:
            depth_state = self.step([Block(field)], depth_state)
        return self.finish(depth_state)


class BlockwiseScheme(DepthScheme):
    """Scheme that steps one block at a time and does not distinguish the blocks of one layer from those of another."""

    adds_increment = False  # a step is y + f(y)

    def step(self, layer: Sequence[Block], depth_state: DepthState) -> DepthState:
        for block in layer:
            if block.stepped and self.adds_increment and block.sum is not None:
                depth_state = replace(depth_state, y=block.sum(depth_state.y), depth=depth_state.depth + 1)
            elif block.stepped:
                depth_state = self.step_block(block.field, depth_state)
            else:
                depth_state = replace(depth_state, y=block.field(depth_state.y))
        return depth_state

    @abstractmethod
    def step_block(self, field: VectorField, depth_state: DepthState) -> DepthState:
        """Return the state after one block with the vector field ``field``."""


class RecurrenceScheme(BlockwiseScheme):
    """Base of the schemes that :mod:`ode_transformer.numerics.recurrences` lists."""

    def weights(self, block: int) -> tuple[Tensor, ...]:
        """Return the learned weights in the equation of block number ``block``: numbers [] or vectors [dim]."""
        return ()


@dataclass(frozen=True)
class BlockHistory(DepthState):
    """Depth state of a scheme that reads all earlier blocks.

    :param history: y_0, and what each block has left, each [.., dim]
    :param layer_outputs: outputs of the last layer's blocks, each [.., dim]
    """

    history: tuple[Tensor, ...] = ()
    layer_outputs: tuple[Tensor, ...] = ()


class BlockHistoryScheme(RecurrenceScheme):
    """Scheme whose y follows from the outputs of all blocks so far."""

    @abstractmethod
    def add(self, output: Tensor, depth_state: BlockHistory) -> BlockHistory:
        """Return the state after one more block, which has returned ``output``."""

    def step(self, layer: Sequence[Block], depth_state: DepthState) -> DepthState:
        return super().step(layer, replace(depth_state, layer_outputs=()))  # type: ignore[call-arg]

    def layer_outputs(self, depth_state: DepthState) -> tuple[Tensor, ...]:
        """Return the outputs of the last layer's blocks, before they are combined with earlier ones."""
        assert isinstance(depth_state, BlockHistory)
        return depth_state.layer_outputs

    def skip_layer(self, outputs: Sequence[Tensor], layer: Sequence[Block], depth_state: DepthState) -> BlockHistory:
        assert isinstance(depth_state, BlockHistory)
        next_state = replace(depth_state, layer_outputs=())
        for output in outputs:
            next_state = self.add(output, next_state)
        return next_state


class StepObserver(Protocol):
    """Sees the steps of a scheme with stages; ``block`` counts the stepped blocks from 0."""

    def report_stage_weights(self, block: int, weights: Sequence[Weight]) -> None:
        """Two or more stages, or one with a learned weight, have been weighed by γ_1 … γ_s in a step over the block."""

    def report_step(self, block: int, field: VectorField, y: Tensor, next_y: Tensor) -> None:
        """The block with this vector field has been stepped from ``y`` to ``next_y``."""


class WeighingScheme(BlockwiseScheme):
    """Scheme that weighs the increments of its stages by coefficients.

    :param coefficients: one set for each block, or a single set that all blocks share
    """

    def __init__(self, coefficients: Sequence[nn.Module]) -> None:
        super().__init__()
        self.coefficients = nn.ModuleList(coefficients)
        self.observer: StepObserver | None = None

    def weigh_stages(self, block: int, increments: Sequence[Tensor]) -> Sequence[Weight]:
        """Return γ_1 … γ_s for the increments of block number ``block``, and report them to the observer."""
        coefficients = self.coefficients[block if len(self.coefficients) > 1 else 0]
        weights: Sequence[Weight] = coefficients(increments)
        if self.observer is not None and (len(weights) > 1 or isinstance(weights[0], Tensor)):
            self.observer.report_stage_weights(block, weights)
        return weights


class RungeKutta(WeighingScheme):
    """Runge–Kutta steps over each block, from t = 0 to t = h.

    :param tableau: the scheme
    :param coefficients: one set for each block, or a single set that all blocks share
    :param steps: N steps of size h/N for each block
    :param step_size: h
    :param norms: for each block the normalisation of what a step adds; empty for none
    """

    def __init__(
        self,
        tableau: ButcherTableau,
        coefficients: Sequence[nn.Module],
        steps: int = 1,
        step_size: float = 1.0,
        norms: Sequence[nn.Module] = (),
    ) -> None:
        super().__init__(coefficients)
        self.norms = nn.ModuleList(norms)
        self.tableau = tableau
        self.steps = steps
        self.step_size = step_size
        learned = any(True for _ in self.coefficients.parameters())
        self._is_plain = tableau.b == (1.0,) and steps == step_size == 1 and not norms and not learned

    @property
    def adds_increment(self) -> bool:  # type: ignore[override]
        """True for one Euler step of length 1, neither learned nor normalised, that nobody observes."""
        return self._is_plain and self.observer is None

    def step_block(self, field: VectorField, depth_state: DepthState) -> DepthState:
        block, weigh = depth_state.depth, partial(self.weigh_stages, depth_state.depth)
        norm = self.norms[block] if self.norms else None
        y = runge_kutta_steps(field, depth_state.y, self.tableau, self.steps, weigh, self.step_size, norm)
        if self.observer is not None:
            # To y' = F(y) until t = h belongs y' = h F(y) until t = 1.
            self.observer.report_step(block, lambda point: self.step_size * field(point), depth_state.y, y)
        return DepthState(y, block + 1)
