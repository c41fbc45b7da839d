"""Momentum through depth: steps with a velocity v beside y.

    x = y_t + μ_t v_t,   v_{t+1} = N(β_t v_t + γ_t F(x)),   y_{t+1} = y_t + v_{t+1},   v_0 = 0

Nesterov's method (Zimin, Polyanskiy and Rigollet 2026, arXiv 2601.23236), and with μ = 0 the heavy ball (Sander et al.
2021, arXiv 2102.07870). t counts blocks. N is a layer normalisation for each block, or nothing. Each block has a number
μ and β from 0 to 1 and γ above 0: sigmoids of raw numbers and a softplus of one, which start at 0. In the first block
v is 0, so that μ and β have no effect.
"""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from ode_transformer.numerics.depth import DepthState, RecurrenceScheme
from ode_transformer.numerics.runge_kutta import VectorField, add_weighted, weighted_sum


@dataclass(frozen=True)
class MomentumState(DepthState):
    """Depth state whose memory is v, with μ, β and γ of all blocks, [blocks] each; μ is None for the heavy ball."""

    mu: Tensor | None = field(kw_only=True)
    beta: Tensor = field(kw_only=True)
    gamma: Tensor = field(kw_only=True)


class Momentum(RecurrenceScheme):
    """Steps with a velocity.

    :param looks_ahead: Nesterov's method, which evaluates F at y + μ v; otherwise the heavy ball, at y
    :param normalize_step: N is a layer normalisation
    """

    def __init__(self, blocks: int, dim: int, looks_ahead: bool, normalize_step: bool = False) -> None:
        super().__init__()
        self.raw_mu = nn.Parameter(torch.zeros(blocks)) if looks_ahead else None
        self.raw_beta = nn.Parameter(torch.zeros(blocks))
        self.raw_gamma = nn.Parameter(torch.zeros(blocks))
        self.norms = nn.ModuleList(nn.LayerNorm(dim) if normalize_step else nn.Identity() for _ in range(blocks))

    def start(self, y0: Tensor) -> MomentumState:
        mu = None if self.raw_mu is None else self.raw_mu.sigmoid()
        beta, gamma = self.raw_beta.sigmoid(), softplus(self.raw_gamma)
        return MomentumState(y0, memory=(torch.zeros_like(y0),), mu=mu, beta=beta, gamma=gamma)

    def step_block(self, field: VectorField, depth_state: DepthState) -> MomentumState:
        assert isinstance(depth_state, MomentumState)
        y, (v,), block = depth_state.y, depth_state.memory, depth_state.depth
        x = y if depth_state.mu is None else add_weighted(y, (depth_state.mu[block],), (v,))
        v = weighted_sum((depth_state.beta[block], depth_state.gamma[block]), (v, field(x)))
        v = self.norms[block](v)
        return replace(depth_state, y=add_weighted(y, (1.0,), (v,)), depth=block + 1, memory=(v,))

    def weights(self, block: int) -> tuple[Tensor, ...]:
        """Return γ, β and μ of a block, those that have an effect."""
        gamma = softplus(self.raw_gamma[block])
        earlier = [raw[block].sigmoid() for raw in (self.raw_beta, self.raw_mu) if raw is not None]
        return (gamma, *earlier) if block else (gamma,)
