"""Layer history: the input of each layer is a combination of all earlier states (DLCL, Wang et al. 2019).

    x_n = Σ_{i ≤ n} W[n, i] s_i,   s_0 = y_0,   s_i = LN_i(y_i),   y_{n+1} = step(x_n)

Post-norm stacks normalise the sum instead: s_i = y_i, and x_n = LN_n(Σ …) for n ≥ 1. ``dlcl`` learns W, which starts at
the mean; ``dense`` keeps the mean. (The row "DLCL" of ODE Transformer's Table 7, y_0 + Σ W_l F(y_l), sums increments
and is another scheme.)

The states stand in one tensor S, [L + 1, .., dim]. At any depth, a combination and its gradient are then products,
where a chain of additions reads and writes all numbers for each state:

    x_n = W[n] S,   ∂ℓ/∂s_i = W[n, i] ∂ℓ/∂x_n,   ∂ℓ/∂W[n] = S ∂ℓ/∂x_n
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ode_transformer.numerics import Scheme, Weight, mean_weights, weighted_sum


@dataclass(frozen=True)
class States:
    """States s_0 … s_n, one by one for autograd, and in the first rows of S.

    No tuple: fairseq's search for a NaN looks into tuples, and the later rows of S are not yet written.
    """

    single: tuple[Tensor, ...]
    joined: Tensor


class LayerHistory(nn.Module):
    """Combination of earlier states; called after each layer with the states so far.

    :param scheme: steps the layers; here only because checkpoints name its parameters so
    :param layers: L
    :param learned: True for DLCL: (L + 1)² weights, of which the lower triangle is used, as in the released code
    :param normalize_before: the layers are pre-norm
    """

    def __init__(self, scheme: Scheme, layers: int, dim: int, learned: bool, normalize_before: bool = True) -> None:
        super().__init__()
        self.scheme = scheme
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(layers))
        self.weight = nn.Parameter(mean_weights(layers)) if learned else None
        self.normalize_before = normalize_before

    def forward(self, y: Tensor, states: States | None = None) -> tuple[Tensor, States]:
        """Return x_n and s_0 … s_n.

        :param y: y_n, [.., dim]
        :param states: s_0 … s_{n−1}; None for n = 0
        """
        n = 0 if states is None else len(states.single)
        if states is None:
            states = States((), y.new_empty(len(self.norms) + 1, *y.shape))
        single = (*states.single, self.norms[n - 1](y) if n and self.normalize_before else y)
        if self.weight is None or torch.is_autocast_enabled(y.device.type) or torch.compiler.is_compiling():
            x = weighted_sum(self.weights(n), single)
        else:
            combine = _Combination.apply if torch.is_grad_enabled() else _combine
            x = combine(self.weight[n, : n + 1], states.joined, *single)
        return x if self.normalize_before or not n else self.norms[n - 1](x), States(single, states.joined)

    def weights(self, depth: int) -> Sequence[Weight]:
        """Return W[depth, 0 … depth]."""
        return [1 / (depth + 1)] * (depth + 1) if self.weight is None else self.weight[depth, : depth + 1].unbind()


def _combine(weights: Tensor, joined: Tensor, *states: Tensor) -> Tensor:
    """Write s_n into S and return W[n] S; half precision is summed in float32."""
    n = len(states) - 1
    joined[n] = states[n]
    return torch.mm(weights.to(joined.dtype)[None], joined[: n + 1].view(n + 1, -1)).view(states[n].shape)


class _Combination(torch.autograd.Function):
    """:func:`_combine` with its gradient."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, joined: Tensor, *states: Tensor) -> Tensor:
        ctx.save_for_backward(weights)
        ctx.states = joined[: len(states)].view(len(states), -1)  # later states are written into other rows
        return _combine(weights, joined, *states)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (weights,), dx = ctx.saved_tensors, gradient.reshape(-1)
        dstates = torch.outer(weights.to(dx.dtype), dx).view(-1, *gradient.shape)
        dweights = torch.mv(ctx.states, dx) if ctx.needs_input_grad[0] else None
        return dweights, None, *dstates.unbind()
