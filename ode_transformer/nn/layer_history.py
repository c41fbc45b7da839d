"""Layer history: each layer reads a combination of all earlier states (DLCL, Wang et al. 2019).

    x_n = Σ_{i ≤ n} W[n, i] s_i,   s_0 = y_0,   s_i = LN_i(y_i),   y_{n+1} = step(x_n)

Post-norm stacks normalise the sum instead: s_i = y_i, and x_n = LN_n(Σ …) for n ≥ 1. ``dlcl`` learns W, which starts at
the mean; ``dense`` keeps the mean. (The row "DLCL" of ODE Transformer's Table 7,
y_0 + Σ W_l F(y_l), sums increments and is another scheme.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from ode_transformer.numerics import Block, DepthScheme, DepthState, Weight, add_weighted

HISTORIES = ("none", "dense", "dlcl")


@dataclass(frozen=True)
class HistoryState(DepthState):
    """Adds what has been remembered.

    :param inner: the state of the scheme that steps the layers
    :param memory: s_0 … s_n after n layers, each [.., dim]
    """

    inner: DepthState = field(kw_only=True)
    memory: tuple[Tensor, ...] = field(kw_only=True)


class LayerHistory(DepthScheme):
    """Lets a scheme step the layers from combinations of all earlier states.

    :param scheme: how one layer is stepped
    :param layers: L
    :param dim: width
    :param learned: True for DLCL: (L + 1)² weights, of which the lower triangle is used, as released
    :param normalize_before: the layers are pre-norm
    """

    def __init__(
        self, scheme: DepthScheme, layers: int, dim: int, learned: bool, normalize_before: bool = True
    ) -> None:
        super().__init__()
        self.scheme = scheme
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(layers))
        mean = torch.ones(layers + 1, layers + 1).tril() / torch.arange(1, layers + 2)[:, None]
        self.weight = nn.Parameter(mean) if learned else None
        self.normalize_before = normalize_before

    def start(self, y0: Tensor) -> HistoryState:
        return self._remember(self.scheme.start(y0), (y0,))

    def step(self, layer: Sequence[Block], depth_state: DepthState) -> HistoryState:
        return self._passed(self.scheme.step(layer, self._inner(depth_state)), depth_state)

    def carried(self, depth_state: DepthState) -> tuple[Tensor, ...]:
        return self.scheme.carried(self._inner(depth_state))

    def made(self, depth_state: DepthState) -> tuple[Tensor, ...]:
        """What the layer made, before it is normalised and combined."""
        assert isinstance(depth_state, HistoryState)
        return self.scheme.carried(depth_state.inner)

    def replaced(self, made: Sequence[Tensor], layer: Sequence[Block], depth_state: DepthState) -> HistoryState:
        return self._passed(self.scheme.replaced(made, layer, self._inner(depth_state)), depth_state)

    def weights(self, depth: int) -> Sequence[Weight]:
        """W[depth, 0 … depth]."""
        if self.weight is None:
            return (1.0 / (depth + 1),) * (depth + 1)
        return self.weight[depth, : depth + 1].unbind()

    def _inner(self, depth_state: DepthState) -> DepthState:
        """Where the scheme steps the next layer from: what it keeps for itself, and the combination."""
        assert isinstance(depth_state, HistoryState)
        return replace(depth_state.inner, y=depth_state.y)

    def _passed(self, inner: DepthState, before: DepthState) -> HistoryState:
        assert isinstance(before, HistoryState)
        new = self.norms[len(before.memory) - 1](inner.y) if self.normalize_before else inner.y
        return self._remember(inner, (*before.memory, new))

    def _remember(self, inner: DepthState, memory: tuple[Tensor, ...]) -> HistoryState:
        depth = len(memory) - 1
        nothing = memory[0].new_zeros(1)  # broadcasts: the sum begins without a tensor of zeros
        x = add_weighted(nothing, self.weights(depth), memory)
        if depth > 0 and not self.normalize_before:
            x = self.norms[depth - 1](x)
        return HistoryState(x, inner.depth, inner=inner, memory=memory)
