"""Layer history: the input of each layer is a combination of all earlier states (DLCL, Wang et al. 2019).

    x_n = Σ_{i ≤ n} W[n, i] s_i,   s_0 = y_0,   s_i = LN_i(y_i),   y_{n+1} = step(x_n)

Post-norm stacks normalise the sum instead: s_i = y_i, and x_n = LN_n(Σ …) for n ≥ 1. ``dlcl`` learns W, which starts at
the mean; ``dense`` keeps the mean. (The row "DLCL" of ODE Transformer's Table 7, y_0 + Σ W_l F(y_l), sums increments
and is another scheme.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from ode_transformer.numerics import Block, DepthScheme, DepthState, Weight, mean_weights, weighted_sum

HISTORIES = ("none", "dense", "dlcl")


@dataclass(frozen=True)
class HistoryState(DepthState):
    """Depth state with the layer history.

    :param inner: state of the scheme that steps the layers
    :param history: s_0 … s_n after n layers, each [.., dim]
    :param sums: what s_0 … s_n add to the inputs x_n … x_L of this layer and all later ones, [L + 1 − n, .., dim]; None
        where each input is computed when it is needed
    """

    inner: DepthState = field(kw_only=True)
    history: tuple[Tensor, ...] = field(kw_only=True)
    sums: Tensor | None = field(kw_only=True, default=None)


class LayerHistory(DepthScheme):
    """Scheme that steps each layer from a combination of all earlier states.

    :param scheme: scheme that steps one layer
    :param layers: L
    :param dim: width
    :param learned: True for DLCL: (L + 1)² weights, of which the lower triangle is used, as in the released code
    :param normalize_before: the layers are pre-norm
    """

    def __init__(
        self, scheme: DepthScheme, layers: int, dim: int, learned: bool, normalize_before: bool = True
    ) -> None:
        super().__init__()
        self.scheme = scheme
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(layers))
        self.weight = nn.Parameter(mean_weights(layers)) if learned else None
        self.normalize_before = normalize_before

    def start(self, y0: Tensor) -> HistoryState:
        return self._combine(self.scheme.start(y0), (y0,))

    def step(self, layer: Sequence[Block], depth_state: DepthState) -> HistoryState:
        return self._add_to_history(self.scheme.step(layer, self._inner_state(depth_state)), depth_state)

    def layer_inputs(self, depth_state: DepthState) -> tuple[Tensor, ...]:
        return self.scheme.layer_inputs(self._inner_state(depth_state))

    def layer_outputs(self, depth_state: DepthState) -> tuple[Tensor, ...]:
        """Return the outputs of the layer before they are normalised and combined."""
        assert isinstance(depth_state, HistoryState)
        return self.scheme.layer_outputs(depth_state.inner)

    def skip_layer(self, outputs: Sequence[Tensor], layer: Sequence[Block], depth_state: DepthState) -> HistoryState:
        inner = self.scheme.skip_layer(outputs, layer, self._inner_state(depth_state))
        return self._add_to_history(inner, depth_state)

    def weights(self, depth: int) -> Sequence[Weight]:
        """Return W[depth, 0 … depth]."""
        if self.weight is None:
            return (1.0 / (depth + 1),) * (depth + 1)
        return self.weight[depth, : depth + 1].unbind()

    def _inner_state(self, depth_state: DepthState) -> DepthState:
        """Return the scheme's own state with the combination as the y that it steps."""
        assert isinstance(depth_state, HistoryState)
        return replace(depth_state.inner, y=depth_state.y)

    def _add_to_history(self, inner: DepthState, previous: DepthState) -> HistoryState:
        """Return the state after a layer: ``inner`` of the scheme, and its y added to the history of ``previous``."""
        assert isinstance(previous, HistoryState)
        entry = self.norms[len(previous.history) - 1](inner.y) if self.normalize_before else inner.y
        return self._combine(inner, (*previous.history, entry), previous.sums)

    def _combine(
        self, inner: DepthState, history: tuple[Tensor, ...], earlier_sums: Tensor | None = None
    ) -> HistoryState:
        depth, sums = len(history) - 1, None
        if self.weight is not None and history[0].size(-2) == 1 and not torch.is_grad_enabled():
            # A step of decoding: one operator for all later layers takes no longer than one for each term of a sum.
            sums = self._add_to_sums(earlier_sums, history[-1], self.weight[depth:, depth])
            x = sums[0].to(history[-1].dtype)
        else:
            x = weighted_sum(self.weights(depth), history)
        if depth > 0 and not self.normalize_before:
            x = self.norms[depth - 1](x)
        return HistoryState(x, inner.depth, inner=inner, history=history, sums=sums)

    @staticmethod
    def _add_to_sums(sums: Tensor | None, s: Tensor, weights: Tensor) -> Tensor:
        """Return the sums of the later layers with W[n … L, n] s_n, in float32 if ``s`` has half precision.

        :param sums: those of s_0 … s_{n−1} from layer n − 1 on
        """
        factors = weights.view(-1, *(1,) * s.dim())  # [L + 1 − n, 1, ..]
        if sums is None:
            return factors * s.to(torch.promote_types(s.dtype, torch.float32))
        return torch.addcmul(sums[1:], factors, s)
