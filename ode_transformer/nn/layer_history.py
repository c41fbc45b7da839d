"""Layer history: each layer reads a combination of all earlier states (DLCL, Wang et al. 2019).

    x_n = Σ_{i ≤ n} W[n, i] s_i,   s_0 = y_0,   s_i = LN_i(y_i),   y_{n+1} = step(x_n)

``dlcl`` learns W, which starts at the mean; ``dense`` keeps the mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ode_transformer.numerics import DepthScheme, DepthState, VectorField, add_weighted

HISTORIES = ("none", "dense", "dlcl")


@dataclass(frozen=True)
class HistoryState(DepthState):
    """Adds what has been remembered: s_0 … s_depth, each [.., dim]."""

    memory: tuple[Tensor, ...] = ()


class LayerHistory(DepthScheme):
    """Puts a one-step scheme behind a history of all layers.

    :param scheme: how one layer is stepped
    :param layers: L
    :param dim: width
    :param learned: True for DLCL: (L + 1)² weights, of which the lower triangle is used, as released
    """

    def __init__(self, scheme: DepthScheme, layers: int, dim: int, learned: bool) -> None:
        super().__init__()
        self.scheme = scheme
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(layers))
        mean = torch.ones(layers + 1, layers + 1).tril() / torch.arange(1, layers + 2)[:, None]
        if learned:
            self.weight = nn.Parameter(mean)
        else:
            self.register_buffer("weight", mean, persistent=False)

    def start(self, y0: Tensor) -> HistoryState:
        return self._remember((y0,))

    def step(self, field: VectorField, depth_state: DepthState) -> HistoryState:
        assert isinstance(depth_state, HistoryState)
        y = self.scheme.step(field, depth_state).y
        return self._remember((*depth_state.memory, self.norms[depth_state.depth](y)))

    def _remember(self, memory: tuple[Tensor, ...]) -> HistoryState:
        depth = len(memory) - 1
        weights = self.weight[depth, : depth + 1].unbind()
        return HistoryState(add_weighted(torch.zeros_like(memory[0]), weights, memory), depth, memory)
