"""Momentum through depth: steps with a velocity v beside y.

    x = y_t + μ_t v_t,   v_{t+1} = N(β_t v_t + γ_t F(x)),   y_{t+1} = y_t + v_{t+1},   v_0 = 0

Nesterov's method (Zimin, Polyanskiy and Rigollet 2026, arXiv 2601.23236), and with μ = 0 the heavy ball (Sander et al.
2021, arXiv 2102.07870). t counts blocks. N is a layer normalisation for each block, or nothing. Each block has a number
μ and β from 0 to 1 and γ above 0: sigmoids of raw numbers and a softplus of one, which start at 0. In the first block
v is 0, so that μ and β have no effect.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from ode_transformer.numerics.runge_kutta import add_weighted, weighted_sum
from ode_transformer.numerics.scheme import Field, Scheme


class Momentum(Scheme):
    """Steps with a velocity v [.., dim], the state.

    :param looks_ahead: Nesterov's method, which evaluates F at y + μ v; otherwise the heavy ball, at y
    :param normalize_step: N is a layer normalisation
    """

    def __init__(self, blocks: int, dim: int, looks_ahead: bool, normalize_step: bool = False) -> None:
        super().__init__()
        self.raw_mu = nn.Parameter(torch.zeros(blocks)) if looks_ahead else None
        self.raw_beta = nn.Parameter(torch.zeros(blocks))
        self.raw_gamma = nn.Parameter(torch.zeros(blocks))
        self.norms = nn.ModuleList(nn.LayerNorm(dim) if normalize_step else nn.Identity() for _ in range(blocks))

    def start(self, y0: Tensor) -> Tensor:
        return torch.zeros_like(y0)

    def forward(self, f: Field, y: Tensor, state: Tensor, block: int) -> tuple[Tensor, Tensor]:
        gamma, beta = softplus(self.raw_gamma[block]), self.raw_beta[block].sigmoid()
        x = y if self.raw_mu is None else add_weighted(y, (self.raw_mu[block].sigmoid(),), (state,))
        v = self.norms[block](weighted_sum((beta, gamma), (state, f(x, 0))))
        return y + v, v

    def weights(self, block: int) -> tuple[Tensor, ...]:
        """Return γ, β and μ of a block, those that have an effect."""
        gamma = softplus(self.raw_gamma[block])
        earlier = [raw[block].sigmoid() for raw in (self.raw_beta, self.raw_mu) if raw is not None]
        return (gamma, *earlier) if block else (gamma,)
