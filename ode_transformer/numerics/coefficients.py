"""The weights γ_i of the increments in y + h Σ γ_i F_i: the tableau's own, or others that keep its stages.

ODE Transformer (2022) 3.2: γ = b is the Runge–Kutta scheme; γ_i = 1 and trained γ_i keep the stages and give up the
order of accuracy. Each class maps the increments (F_1, …, F_s), each [..., dim], to s weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from ode_transformer.numerics.runge_kutta import Weight
from ode_transformer.numerics.tableau import ButcherTableau


class TableauCoefficients(nn.Module):
    """γ_i = b_i: the scheme as its tableau defines it."""

    def __init__(self, tableau: ButcherTableau, dim: int) -> None:
        super().__init__()
        self.weights = tableau.b

    def forward(self, increments: Sequence[Tensor]) -> Sequence[Weight]:
        return self.weights


class OnesCoefficients(nn.Module):
    """γ_i = 1 (2022, Eq. 23). With two Heun stages this is the layer applied twice, not a step of the ODE."""

    def __init__(self, tableau: ButcherTableau, dim: int) -> None:
        super().__init__()
        self.weights = (1.0,) * tableau.stages

    def forward(self, increments: Sequence[Tensor]) -> Sequence[Weight]:
        return self.weights


class ScalarCoefficients(nn.Module):
    """γ_i: one trained number for each stage, all 1 at the start (2021; 2022 3.2)."""

    def __init__(self, tableau: ButcherTableau, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(tableau.stages))

    def forward(self, increments: Sequence[Tensor]) -> Sequence[Weight]:
        return self.weight.unbind()


class GateCoefficients(nn.Module):
    """γ = softmax([W·[F_1; …; F_s] + b; 0]), for each position; two stages give the paper's g and 1 − g.

    g = sigmoid(W·[F_1; F_2] + b), y + g F_1 + (1 − g) F_2 (2022, Eqs. 25 and 26). More stages are our generalisation.
    W starts at zero and b where the softmax gives the tableau's weights, so training starts from the scheme itself; the
    papers leave the start open. Computed in float32 whatever the precision of the increments, under autocast too.
    """

    def __init__(self, tableau: ButcherTableau, dim: int) -> None:
        super().__init__()
        if tableau.stages < 2:
            raise ValueError(f"coefficients 'gate' need at least two stages; scheme '{tableau.name}' has one")
        if min(tableau.b) <= 0:
            raise ValueError(
                f"coefficients 'gate' start from weights that must be positive; '{tableau.name}' has {tableau.b}"
            )
        self.projection = nn.Linear(tableau.stages * dim, tableau.stages - 1)
        nn.init.zeros_(self.projection.weight)
        with torch.no_grad():
            self.projection.bias.copy_(torch.tensor([math.log(b / tableau.b[-1]) for b in tableau.b[:-1]]))

    def forward(self, increments: Sequence[Tensor]) -> Sequence[Weight]:
        with torch.autocast(increments[0].device.type, enabled=False):
            return self._weights(increments)

    def _weights(self, increments: Sequence[Tensor]) -> Sequence[Weight]:
        dtype = torch.promote_types(increments[0].dtype, torch.float32)
        weight, bias = self.projection.weight.to(dtype), self.projection.bias.to(dtype)
        # W·[F_1; …; F_s] as a sum over the blocks of W: the concatenation is never made.
        blocks = weight.chunk(len(increments), dim=1)
        logits = bias + sum(
            nn.functional.linear(f.to(dtype), block) for f, block in zip(increments, blocks, strict=True)
        )
        logits = torch.cat([logits, logits.new_zeros(*logits.shape[:-1], 1)], dim=-1)
        return logits.softmax(dim=-1).split(1, dim=-1)


COEFFICIENTS: dict[str, Callable[[ButcherTableau, int], nn.Module]] = {
    "tableau": TableauCoefficients,
    "ones": OnesCoefficients,
    "scalar": ScalarCoefficients,
    "gate": GateCoefficients,
}
