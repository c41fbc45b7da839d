"""Depth schemes other than Runge–Kutta: recurrences in the layers' outputs y_t and their increments F(y_t).

    leapfrog              y_{t+1} = y_{t−1} + 2 F(y_t)
    multistep             y_{t+1} = k_t y_t + (1 − k_t) y_{t−1} + F(y_t)
    dlcl-increments       y_{t+1} = y_0 + Σ_{l ≤ t} W[t, l] F(y_l)
    polynet               y_{t+1} = y_t + F(y_t) + F(F(y_t))
    multistep-released    y_{t+1} = k_t ∗ y_{t−1} + u + f(u),   u = LN_t((1 − k_t) ∗ y_t)
    polynet-released      polynet for each sub-layer

The first four are ODE Transformer (2022), Table 7 (2021, Table 4); the last two are those of the released code. In
``multistep-released``, f is a sub-layer without its normalisation. t counts blocks: layers, or sub-layers if these are
stepped one by one. As there is no y_{−1}, schemes that read y_{t−1} begin with a block of Euler's method,
y_1 = y_0 + F(y_0).

As solvers of y' = F(y), leapfrog has order 2, multistep order 1 if all k are 1, and DLCL order 1 if all W are 1; these
two start there, as Euler's method. With other weights they do not converge to its solution, nor do the last three:
PolyNet tends to y' = F(y) + F(0). A new scheme is a class and an entry of ``RECURRENCES``, such as those of
:mod:`ode_transformer.numerics.predictor_corrector`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from ode_transformer.numerics.depth import Block, BlockwiseScheme, DepthState
from ode_transformer.numerics.runge_kutta import VectorField, add_weighted, weighted_sum
from ode_transformer.numerics.tableau import reserve_scheme_name


class RecurrenceScheme(BlockwiseScheme):
    """Base of the schemes of this module."""

    def weights(self, block: int) -> tuple[Tensor, ...]:
        """Return the learned weights in the equation of block number ``block``: numbers [] or vectors [dim]."""
        return ()


@dataclass(frozen=True)
class TwoStepState(DepthState):
    """Depth state with the previous y.

    :param previous: y_{t−1}, [.., dim]; zeros at the start, where nothing reads them
    """

    previous: Tensor = field(kw_only=True)


class TwoStepScheme(RecurrenceScheme, ABC):
    """Scheme that computes y_{t+1} from y_t and y_{t−1}, and y_1 from y_0."""

    def start(self, y0: Tensor) -> TwoStepState:
        return TwoStepState(y0, previous=torch.zeros_like(y0))

    def step_block(self, field: VectorField, depth_state: DepthState) -> TwoStepState:
        assert isinstance(depth_state, TwoStepState)
        y, previous, block = depth_state.y, depth_state.previous, depth_state.depth
        next_y = self.next_y(field, y, previous, block) if block else self.first_y(field, y)
        # A view, so that its gradient is that of the step that reads it as y_{t−1}, without that of y_t.
        return TwoStepState(next_y, block + 1, previous=y.view_as(y))

    def first_y(self, field: VectorField, y: Tensor) -> Tensor:
        """Return y_1."""
        return add_weighted(y, (1.0,), (field(y),))

    @abstractmethod
    def next_y(self, field: VectorField, y: Tensor, previous: Tensor, block: int) -> Tensor:
        """Return y_{t+1} for t = ``block``."""

    def layer_inputs(self, depth_state: DepthState) -> tuple[Tensor, ...]:
        """Return y_t and y_{t−1}."""
        assert isinstance(depth_state, TwoStepState)
        return depth_state.y, depth_state.previous

    def skip_layer(self, outputs: Sequence[Tensor], layer: Sequence[Block], depth_state: DepthState) -> TwoStepState:
        y, previous = outputs
        return TwoStepState(y, depth_state.depth + len(layer), previous=previous)


class Leapfrog(TwoStepScheme):
    """y_{t+1} = y_{t−1} + 2 F(y_t)."""

    def __init__(self, blocks: int, dim: int) -> None:
        super().__init__()

    def next_y(self, field: VectorField, y: Tensor, previous: Tensor, block: int) -> Tensor:
        return add_weighted(previous, (2.0,), (field(y),))


class Multistep(TwoStepScheme):
    """y_{t+1} = k_t y_t + (1 − k_t) y_{t−1} + F(y_t), a learned number for each block, all 1 at the start.

    The first block has a number without effect: with y_{−1} = y_0 the equation is Euler's method for every k.
    """

    def __init__(self, blocks: int, dim: int) -> None:
        super().__init__()
        self.k = nn.Parameter(torch.ones(blocks))

    def first_y(self, field: VectorField, y: Tensor) -> Tensor:
        return self.next_y(field, y, y, 0)  # gives the k of every stack a gradient, which is 0 here

    def next_y(self, field: VectorField, y: Tensor, previous: Tensor, block: int) -> Tensor:
        k = self.k[block]
        return weighted_sum((k, 1 - k, 1.0), (y, previous, field(y)))

    def weights(self, block: int) -> tuple[Tensor, ...]:
        return (self.k[block],) if block else ()


class MultistepReleased(TwoStepScheme):
    """y_{t+1} = k_t ∗ y_{t−1} + u + f(u), u = LN_t((1 − k_t) ∗ y_t), k_t learned from U(−1, 0) in each channel.

    The first sub-layer is the plain pre-norm residual one, y_1 = y_0 + f(LN_0(y_0)), and has no k.
    """

    def __init__(self, blocks: int, dim: int) -> None:
        super().__init__()
        self.k = nn.Parameter(torch.empty(max(blocks - 1, 0), dim).uniform_(-1, 0))
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(blocks))

    def first_y(self, field: VectorField, y: Tensor) -> Tensor:
        return add_weighted(y, (1.0,), (field(self.norms[0](y)),))

    def next_y(self, field: VectorField, y: Tensor, previous: Tensor, block: int) -> Tensor:
        k = self.k[block - 1]
        u = self.norms[block](torch.addcmul(y, k, y, value=-1))
        return add_weighted(u, (1.0, k), (field(u), previous))

    def weights(self, block: int) -> tuple[Tensor, ...]:
        return (self.k[block - 1],) if block else ()


@dataclass(frozen=True)
class IncrementsState(DepthState):
    """Depth state with all increments.

    :param y0: y_0, [.., dim]
    :param increments: F(y_0) … F(y_{t−1}), each [.., dim]
    :param blocks_of_layer: number of increments of the last layer
    """

    y0: Tensor = field(kw_only=True)
    increments: tuple[Tensor, ...] = field(default=(), kw_only=True)
    blocks_of_layer: int = field(default=0, kw_only=True)


class DLCLIncrements(RecurrenceScheme):
    """y_{t+1} = y_0 + Σ_{l ≤ t} W[t, l] F(y_l), all W 1 at the start.

    The table writes W_l. With one weight for each increment the sum is y_{t+1} = y_t + W_t F(y_t), a one-step scheme;
    Wang et al. (2019), whose method the row names, learn a weight for each pair (t, l), and so does this class.
    """

    def __init__(self, blocks: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(blocks, blocks).tril())  # only the lower triangle is used

    def start(self, y0: Tensor) -> IncrementsState:
        return IncrementsState(y0, y0=y0)

    def step(self, layer: Sequence[Block], depth_state: DepthState) -> IncrementsState:
        assert isinstance(depth_state, IncrementsState)
        next_state = super().step(layer, replace(depth_state, blocks_of_layer=0))
        assert isinstance(next_state, IncrementsState)
        return next_state

    def step_block(self, field: VectorField, depth_state: DepthState) -> IncrementsState:
        assert isinstance(depth_state, IncrementsState)
        return self._add(field(depth_state.y), depth_state)

    def _add(self, increment: Tensor, depth_state: IncrementsState) -> IncrementsState:
        increments = (*depth_state.increments, increment)
        return replace(
            depth_state,
            y=add_weighted(depth_state.y0, self.weights(depth_state.depth), increments),
            depth=depth_state.depth + 1,
            increments=increments,
            blocks_of_layer=depth_state.blocks_of_layer + 1,
        )

    def weights(self, block: int) -> tuple[Tensor, ...]:
        return self.weight[block, : block + 1].unbind()

    def layer_outputs(self, depth_state: DepthState) -> tuple[Tensor, ...]:
        """Return the increments of the layer's blocks, before they are weighted and summed."""
        assert isinstance(depth_state, IncrementsState)
        return depth_state.increments[-depth_state.blocks_of_layer :]

    def skip_layer(self, outputs: Sequence[Tensor], layer: Sequence[Block], depth_state: DepthState) -> IncrementsState:
        """Continue as if the layer's blocks had added the increments ``outputs``."""
        assert isinstance(depth_state, IncrementsState)
        next_state = replace(depth_state, blocks_of_layer=0)
        for increment in outputs:
            next_state = self._add(increment, next_state)
        return next_state


class PolyNet(RecurrenceScheme):
    """y_{t+1} = y_t + F(y_t) + F(F(y_t)), a one-step scheme; no tableau describes F of an increment."""

    def __init__(self, blocks: int, dim: int) -> None:
        super().__init__()

    def step_block(self, field: VectorField, depth_state: DepthState) -> DepthState:
        increment = field(depth_state.y)
        y = add_weighted(depth_state.y, (1.0, 1.0), (increment, field(increment)))
        return DepthState(y, depth_state.depth + 1)


@dataclass(frozen=True)
class Recurrence:
    """Entry of ``RECURRENCES``.

    :param name: value of the scheme flags
    :param order: as for a tableau, with the weights at the start of training
    :param build: builds the scheme from a number of blocks and a width, and as keywords from the further options of
        a subclass of this entry
    :param source: publication of the scheme
    :param stages: number of evaluations of the vector field in one block
    :param remembers: the scheme reads earlier states than y_t
    :param trained: the equation has learned weights
    :param each_sublayer: the blocks are sub-layers
    :param normalizes: the scheme applies the layer normalisations itself, so its fields have none
    """

    name: str
    order: int
    build: Callable[..., RecurrenceScheme]
    source: str
    stages: int = 1
    remembers: bool = True
    trained: bool = False
    each_sublayer: bool = False
    normalizes: bool = False


_TABLE_7 = "ODE Transformer (2022) Table 7"
_RELEASED = "released ODE Transformer code"

RECURRENCES: dict[str, Recurrence] = {}


def register_recurrence(recurrence: Recurrence) -> None:
    """Add a scheme: from now on its name is a value of the scheme flags.

    :raises ValueError: if another scheme has its name
    """
    reserve_scheme_name(recurrence.name)
    RECURRENCES[recurrence.name] = recurrence


for _recurrence in (
    Recurrence("leapfrog", 2, Leapfrog, f"{_TABLE_7}; He et al. 2019"),
    Recurrence("multistep", 1, Multistep, f"{_TABLE_7}; Lu et al. 2018", trained=True),
    Recurrence("dlcl-increments", 1, DLCLIncrements, f"{_TABLE_7}; Wang et al. 2019", trained=True),
    Recurrence("polynet", 0, PolyNet, f"{_TABLE_7}; Zhang et al. 2017", stages=2, remembers=False),
    Recurrence(
        "multistep-released", 0, MultistepReleased, _RELEASED, trained=True, each_sublayer=True, normalizes=True
    ),
    Recurrence("polynet-released", 0, PolyNet, _RELEASED, stages=2, remembers=False, each_sublayer=True),
):
    register_recurrence(_recurrence)
