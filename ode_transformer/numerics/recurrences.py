"""Depth schemes that are no Runge–Kutta steps: recurrences in the layers' outputs y_t and their increments F(y_t).

    leapfrog              y_{t+1} = y_{t−1} + 2 F(y_t)
    multistep             y_{t+1} = k_t y_t + (1 − k_t) y_{t−1} + F(y_t)
    dlcl-increments       y_{t+1} = y_0 + Σ_{l ≤ t} W[t, l] F(y_l)
    polynet               y_{t+1} = y_t + F(y_t) + F(F(y_t))
    multistep-released    y_{t+1} = k_t ∗ y_{t−1} + u + f(u),   u = LN_t((1 − k_t) ∗ y_t)
    polynet-released      polynet for each sub-layer

The first four are ODE Transformer (2022), Table 7 (2021, Table 4), the last two what the released code computes, where
f is a sub-layer without its normalisation. t counts blocks: layers, or sub-layers where these are stepped one by one.
There is no y_{−1}: where y_{t−1} is read, the first block is Euler's, y_1 = y_0 + F(y_0).

As solvers of y' = F(y), leapfrog has order 2, multistep order 1 if all k are 1, and DLCL order 1 if all W are 1; both
start there, as Euler. Other weights do not converge to it and borrow the form; so do the last three. PolyNet tends to
y' = F(y) + F(0). A scheme is added by a class and an entry of ``RECURRENCES``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from ode_transformer.numerics.depth import Block, BlockwiseScheme, DepthState
from ode_transformer.numerics.runge_kutta import VectorField, add_weighted


class RecurrenceScheme(BlockwiseScheme):
    """Base of the schemes of this module."""

    def weights(self, block: int) -> tuple[Tensor, ...]:
        """What is trained of the equation of block number ``block``: numbers [], or one for each channel [dim]."""
        return ()


@dataclass(frozen=True)
class TwoStepState(DepthState):
    """Adds the block before.

    :param before: y_{t−1}, [..., dim]; zeros at the start, where nothing reads it
    """

    before: Tensor = field(kw_only=True)


class TwoStepScheme(RecurrenceScheme, ABC):
    """Makes y_{t+1} of y_t and y_{t−1}, and y_1 of y_0."""

    def start(self, y0: Tensor) -> TwoStepState:
        return TwoStepState(y0, before=torch.zeros_like(y0))

    def step_block(self, field: VectorField, depth_state: DepthState) -> TwoStepState:
        assert isinstance(depth_state, TwoStepState)
        y, before, block = depth_state.y, depth_state.before, depth_state.depth
        following = self.following(field, y, before, block) if block else self.first(field, y)
        # A view: the gradient with respect to it is that of the one step that reads it as y_{t−1}.
        return TwoStepState(following, block + 1, before=y.view_as(y))

    def first(self, field: VectorField, y: Tensor) -> Tensor:
        """y_1."""
        return add_weighted(y, (1.0,), (field(y),))

    @abstractmethod
    def following(self, field: VectorField, y: Tensor, before: Tensor, block: int) -> Tensor:
        """y_{t+1}, where t is ``block``."""

    def layer_inputs(self, depth_state: DepthState) -> tuple[Tensor, ...]:
        """Return y_t and y_{t−1}."""
        assert isinstance(depth_state, TwoStepState)
        return depth_state.y, depth_state.before

    def skip_layer(self, outputs: Sequence[Tensor], layer: Sequence[Block], depth_state: DepthState) -> TwoStepState:
        y, before = outputs
        return TwoStepState(y, depth_state.depth + len(layer), before=before)


class Leapfrog(TwoStepScheme):
    """y_{t+1} = y_{t−1} + 2 F(y_t)."""

    def __init__(self, blocks: int, dim: int) -> None:
        super().__init__()

    def following(self, field: VectorField, y: Tensor, before: Tensor, block: int) -> Tensor:
        return add_weighted(before, (2.0,), (field(y),))


class Multistep(TwoStepScheme):
    """y_{t+1} = k_t y_t + (1 − k_t) y_{t−1} + F(y_t), a trained number for each block, all 1 at the start.

    The first block has a number, too, which nothing depends on: with y_{−1} = y_0 the equation is Euler's for every k.
    """

    def __init__(self, blocks: int, dim: int) -> None:
        super().__init__()
        self.k = nn.Parameter(torch.ones(blocks))

    def first(self, field: VectorField, y: Tensor) -> Tensor:
        return self.following(field, y, y, 0)  # so that every stack trains its k, with a gradient of 0 here

    def following(self, field: VectorField, y: Tensor, before: Tensor, block: int) -> Tensor:
        k = self.k[block]
        nothing = y.new_zeros(1)  # broadcasts: the sum begins without a tensor of zeros
        return add_weighted(nothing, (k, 1 - k, 1.0), (y, before, field(y)))

    def weights(self, block: int) -> tuple[Tensor, ...]:
        return (self.k[block],) if block else ()


class MultistepReleased(TwoStepScheme):
    """y_{t+1} = k_t ∗ y_{t−1} + u + f(u), u = LN_t((1 − k_t) ∗ y_t), k_t trained from U(−1, 0) in each channel.

    The first sub-layer is the plain pre-norm residual one, y_1 = y_0 + f(LN_0(y_0)), and has no k.
    """

    def __init__(self, blocks: int, dim: int) -> None:
        super().__init__()
        self.k = nn.Parameter(torch.empty(max(blocks - 1, 0), dim).uniform_(-1, 0))
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(blocks))

    def first(self, field: VectorField, y: Tensor) -> Tensor:
        return add_weighted(y, (1.0,), (field(self.norms[0](y)),))

    def following(self, field: VectorField, y: Tensor, before: Tensor, block: int) -> Tensor:
        k = self.k[block - 1]
        u = self.norms[block](torch.addcmul(y, k, y, value=-1))
        return add_weighted(u, (1.0, k), (field(u), before))

    def weights(self, block: int) -> tuple[Tensor, ...]:
        return (self.k[block - 1],) if block else ()


@dataclass(frozen=True)
class IncrementsState(DepthState):
    """Adds what all blocks have added.

    :param y0: y_0, [..., dim]
    :param increments: F(y_0) … F(y_{t−1}), each [..., dim]
    :param of_layer: how many of them are the last layer's
    """

    y0: Tensor = field(kw_only=True)
    increments: tuple[Tensor, ...] = field(default=(), kw_only=True)
    of_layer: int = field(default=0, kw_only=True)


class DLCLIncrements(RecurrenceScheme):
    """y_{t+1} = y_0 + Σ_{l ≤ t} W[t, l] F(y_l), all W 1 at the start.

    The table writes W_l. With one weight for each increment the sum is y_{t+1} = y_t + W_t F(y_t), which has no memory;
    Wang et al. (2019), whose method the row names, train one for each pair (t, l), and so does this.
    """

    def __init__(self, blocks: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(blocks, blocks).tril())  # of which the lower triangle is used

    def start(self, y0: Tensor) -> IncrementsState:
        return IncrementsState(y0, y0=y0)

    def step(self, layer: Sequence[Block], depth_state: DepthState) -> IncrementsState:
        assert isinstance(depth_state, IncrementsState)
        after = super().step(layer, replace(depth_state, of_layer=0))
        assert isinstance(after, IncrementsState)
        return after

    def step_block(self, field: VectorField, depth_state: DepthState) -> IncrementsState:
        assert isinstance(depth_state, IncrementsState)
        return self._added(field(depth_state.y), depth_state)

    def _added(self, increment: Tensor, before: IncrementsState) -> IncrementsState:
        increments = (*before.increments, increment)
        y = add_weighted(before.y0, self.weights(before.depth), increments)
        depth, of_layer = before.depth + 1, before.of_layer + 1
        return IncrementsState(y, depth, y0=before.y0, increments=increments, of_layer=of_layer)

    def weights(self, block: int) -> tuple[Tensor, ...]:
        return self.weight[block, : block + 1].unbind()

    def layer_outputs(self, depth_state: DepthState) -> tuple[Tensor, ...]:
        """Return the increments of the layer's blocks, before they are weighted and summed."""
        assert isinstance(depth_state, IncrementsState)
        return depth_state.increments[-depth_state.of_layer :]

    def skip_layer(self, outputs: Sequence[Tensor], layer: Sequence[Block], depth_state: DepthState) -> IncrementsState:
        """Continue as if the layer's blocks had added the increments ``outputs``."""
        assert isinstance(depth_state, IncrementsState)
        after = replace(depth_state, of_layer=0)
        for increment in outputs:
            after = self._added(increment, after)
        return after


class PolyNet(RecurrenceScheme):
    """y_{t+1} = y_t + F(y_t) + F(F(y_t)): no memory, but F of an increment, which no tableau can say."""

    def __init__(self, blocks: int, dim: int) -> None:
        super().__init__()

    def step_block(self, field: VectorField, depth_state: DepthState) -> DepthState:
        increment = field(depth_state.y)
        y = add_weighted(depth_state.y, (1.0, 1.0), (increment, field(increment)))
        return DepthState(y, depth_state.depth + 1)


@dataclass(frozen=True)
class Recurrence:
    """An entry of the table.

    :param name: what users call it
    :param order: as of a tableau, with the weights that training starts from
    :param build: makes the scheme of a number of blocks and a width
    :param source: where the scheme comes from
    :param stages: how often a block evaluates its vector field
    :param remembers: it reads earlier states than y_t
    :param trained: its equation has trained weights
    :param each_sublayer: its blocks are sub-layers
    :param normalizes: it applies the layer normalisations itself, and its fields come without
    """

    name: str
    order: int
    build: Callable[[int, int], RecurrenceScheme]
    source: str
    stages: int = 1
    remembers: bool = True
    trained: bool = False
    each_sublayer: bool = False
    normalizes: bool = False


_TABLE_7 = "ODE Transformer (2022) Table 7"
_RELEASED = "released ODE Transformer code"

RECURRENCES = {
    recurrence.name: recurrence
    for recurrence in (
        Recurrence("leapfrog", 2, Leapfrog, f"{_TABLE_7}; He et al. 2019"),
        Recurrence("multistep", 1, Multistep, f"{_TABLE_7}; Lu et al. 2018", trained=True),
        Recurrence("dlcl-increments", 1, DLCLIncrements, f"{_TABLE_7}; Wang et al. 2019", trained=True),
        Recurrence("polynet", 0, PolyNet, f"{_TABLE_7}; Zhang et al. 2017", stages=2, remembers=False),
        Recurrence(
            "multistep-released", 0, MultistepReleased, _RELEASED, trained=True, each_sublayer=True, normalizes=True
        ),
        Recurrence("polynet-released", 0, PolyNet, _RELEASED, stages=2, remembers=False, each_sublayer=True),
    )
}
