"""Layer history: the input of each layer is a combination of all earlier states (DLCL, Wang et al. 2019).

    x_n = Σ_{i ≤ n} W[n, i] s_i,   s_0 = y_0,   s_i = LN_i(y_i),   y_{n+1} = step(x_n)

Post-norm stacks normalise the sum instead: s_i = y_i, and x_n = LN_n(Σ …) for n ≥ 1. ``dlcl`` learns W, which starts at
the mean; ``dense`` keeps the mean. (The row "DLCL" of ODE Transformer's Table 7, y_0 + Σ W_l F(y_l), sums increments
and is another scheme.)

All states stand in one tensor, so that a layer takes one product of matrices forward and two backward, at any depth.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ode_transformer.numerics import Block, DepthScheme, DepthState, mean_weights

HISTORIES = ("none", "dense", "dlcl")


@dataclass(frozen=True)
class HistoryState(DepthState):
    """Depth state with the layer history.

    :param inner: state of the scheme that steps the layers
    :param states: s_0 … s_L, [L + 1, .., dim], of which s_0 … s_n are written after n layers
    :param weights: W, [L + 1, L + 1]
    :param layers: n
    """

    inner: DepthState = field(kw_only=True)
    states: Tensor = field(kw_only=True)
    weights: Tensor = field(kw_only=True)
    layers: int = field(kw_only=True, default=0)


class LayerHistory(DepthScheme):
    """Scheme that steps each layer from a combination of all earlier states.

    :param layers: L
    :param learned: True for DLCL: (L + 1)² weights, of which the lower triangle is used, as in the released code
    :param normalize_before: the layers are pre-norm
    """

    def __init__(
        self, scheme: DepthScheme, layers: int, dim: int, learned: bool, normalize_before: bool = True
    ) -> None:
        super().__init__()
        self.scheme = scheme
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(layers))
        self.weight: Tensor
        if learned:
            self.weight = nn.Parameter(mean_weights(layers))
        else:
            self.register_buffer("weight", mean_weights(layers), persistent=False)
        self.normalize_before = normalize_before

    def start(self, y0: Tensor) -> HistoryState:
        states = y0.new_empty(len(self.weight), *y0.shape)
        weights = self.weight if torch.is_grad_enabled() else self.weight.to(y0.dtype)
        return self._combine(self.scheme.start(y0), y0, states, weights, 0)

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

    def weights(self, depth: int) -> Sequence[Tensor]:
        """Return W[depth, 0 … depth]."""
        return self.weight[depth, : depth + 1].unbind()

    def _inner_state(self, depth_state: DepthState) -> DepthState:
        """Return the scheme's own state with the combination as the y that it steps."""
        assert isinstance(depth_state, HistoryState)
        return replace(depth_state.inner, y=depth_state.y)

    def _add_to_history(self, inner: DepthState, previous: DepthState) -> HistoryState:
        """Return the state after a layer: ``inner`` of the scheme, and its y added to the history of ``previous``."""
        assert isinstance(previous, HistoryState)
        s = self.norms[previous.layers](inner.y) if self.normalize_before else inner.y
        return self._combine(inner, s, previous.states, previous.weights, previous.layers + 1)

    def _combine(self, inner: DepthState, s: Tensor, states: Tensor, weights: Tensor, depth: int) -> HistoryState:
        if torch.is_grad_enabled():
            x, states, weights = _AddState.apply(s, states, weights, depth)
        else:
            x = _add_state(s, states, weights, depth)
        if depth > 0 and not self.normalize_before:
            x = self.norms[depth - 1](x)
        return HistoryState(x, inner.depth, inner=inner, states=states, weights=weights, layers=depth)


def _add_state(s: Tensor, states: Tensor, weights: Tensor, n: int) -> Tensor:
    """Write s_n into the states, and return x_n = Σ_{i ≤ n} W[n, i] s_i, [.., dim]; W has the type of the states."""
    states.data[n] = s  # unseen by autograd, which would forbid a tensor whose later rows are written
    device = states.device.type
    with torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext():
        x = torch.mm(weights[n : n + 1, : n + 1], states[: n + 1].view(n + 1, -1))  # sums half precision in float32
    return x.view(s.shape)


class _AddState(torch.autograd.Function):
    """:func:`_add_state` that also returns the states and W.

    Each layer passes the states and W on to the next, so that their gradients come back from the last layer to the
    first as one tensor each: a layer adds its part in place, and no gradient is summed twice.
    """

    @staticmethod
    def forward(ctx: Any, s: Tensor, states: Tensor, weights: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.states, ctx.weights, ctx.n = states, weights, n
        return _add_state(s, states, weights.to(states.dtype), n), states, weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dx: Tensor | None, dstates: Tensor | None, dweights: Tensor | None) -> Any:
        used = slice(ctx.n + 1)
        if dx is not None:
            dx = dx.reshape(-1)
            if dstates is None:
                dstates = torch.zeros_like(ctx.states)
            dstates.view(len(dstates), -1)[used].addr_(ctx.weights[ctx.n, used].to(dx.dtype), dx)
            if ctx.needs_input_grad[2]:
                if dweights is None:
                    dweights = torch.zeros_like(ctx.weights)
                torch.mv(ctx.states[used].view(ctx.n + 1, -1), dx, out=dweights[ctx.n, used])
        return None if dstates is None else dstates[ctx.n], dstates, dweights, None
