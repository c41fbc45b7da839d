"""The weights γ_i of the increments in y + h Σ γ_i F_i: those of the tableau, or others with the same stages.

ODE Transformer (2022) 3.2: γ = b is the Runge–Kutta scheme; γ_i = 1 and trained γ_i keep the stages and give up the
order of accuracy.

    tableau            γ = b, the scheme as its tableau defines it
    ones               γ_i = 1 (2022, Eq. 23); with two Heun stages the layer applied twice, not a step of the ODE
    scalar, vector     γ_i learned from 1: a number for each stage (2021; 2022 3.2), or one for each channel
    ema, ema-vector    γ_i = α (1 − α)^(s − i), α learned from ½: a number, or one for each channel (Li et al. 2024)
    gate               γ = softmax of the s − 1 logits W·[F_1; …; F_s] + β and a 0; two stages give the paper's
                       g = sigmoid(W·[F_1; F_2] + β) and 1 − g (2022, Eqs. 25 and 26), more are our generalisation
    normalised-gate    the gate with W·[LN(F_1); …; LN(F_s)] + β; ours, in none of the papers
    sigmoid, tanh      γ_i = sigmoid or tanh of a logit of its own (2022, Table 10, which names only the functions;
                       that every stage reads all increments, as the gate does, is our decision)

Increments grow in training, and W·[F_1; F_2] with them, until the published gate is 0 or 1 at every position and has no
gradient. Normalised increments keep their size. docs/results/gates.md says where that gate ends.

Each class maps the increments (F_1, …, F_s), each [.., dim], to s weights.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ode_transformer.numerics.runge_kutta import Weight
from ode_transformer.numerics.tableau import ButcherTableau


class FixedCoefficients(nn.Module):
    """Weights that are not learned."""

    def __init__(self, weights: Sequence[float]) -> None:
        super().__init__()
        self.weights = weights

    def forward(self, increments: Sequence[Tensor]) -> Sequence[Weight]:
        return self.weights


class LearnedCoefficients(nn.Module):
    """Learned weights, all 1 at the start.

    Of one stage they are the length of the step, y + γ F(y): ReZero (Bachlechner et al. 2020), which starts at 0, and
    for each channel LayerScale (Touvron et al. 2021), which starts near 0.

    :param shape: [s] or [s, dim]
    """

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(shape))

    def forward(self, increments: Sequence[Tensor]) -> Sequence[Weight]:
        return self.weight.unbind()


class EMACoefficients(nn.Module):
    """Exponential moving average of the increments.

    The weights sum to 1 − (1 − α)^s and not to 1, so that no tableau keeps an order of accuracy.

    :param channels: numbers that α has: 1, or one for each channel
    """

    def __init__(self, stages: int, channels: int) -> None:
        super().__init__()
        self.stages = stages
        self.alpha = nn.Parameter(torch.full((channels,), 0.5))

    def forward(self, increments: Sequence[Tensor]) -> Sequence[Weight]:
        weights: list[Tensor] = [self.alpha]
        for _ in range(self.stages - 1):
            weights.append(weights[-1] * (1 - self.alpha))
        return weights[::-1]  # s tensors [1] or [dim]


class ProjectedCoefficients(nn.Module):
    """γ = c · link(W·[F_1; …; F_s] + β): s numbers for each position, computed from the increments.

    W starts at zero and β where the link gives the tableau's weights, so training starts from the scheme itself; the
    papers do not give a start. Computed in float32 for increments of any precision, under autocast too.

    :param link: maps logits to weights, [.., logits] -> [.., s]
    :param inverse: returns the logits that the link maps to some weights
    :param start: one of ``GATE_STARTS``; ``xavier`` is the released code's start of W, with which the weights differ
        from position to position before the first update
    :param factor: c
    :param normalizes_increments: W reads LN(F_i), without parameters, in the place of F_i
    """

    def __init__(
        self,
        tableau: ButcherTableau,
        dim: int,
        link: Callable[[Tensor], Tensor],
        inverse: Callable[[Sequence[float]], list[float]],
        start: str = "scheme",
        factor: int = 1,
        normalizes_increments: bool = False,
    ) -> None:
        super().__init__()
        self.link, self.factor, self.normalizes_increments = link, factor, normalizes_increments
        bias = torch.tensor(inverse(tableau.b))
        inputs = tableau.stages * dim
        self.projection = nn.Linear(inputs, len(bias))
        # Linear has drawn W within ±inputs^-½; to draw again would change all later random numbers.
        xavier = math.sqrt(6 * inputs / (inputs + len(bias)))
        with torch.no_grad():
            self.projection.weight.mul_(xavier if start == "xavier" else 0)
            self.projection.bias.copy_(bias)

    def forward(self, increments: Sequence[Tensor]) -> Sequence[Weight]:
        with torch.autocast(increments[0].device.type, enabled=False):
            weights = self.link(self._logits(increments)).split(1, dim=-1)  # s tensors [.., 1]
        return weights if self.factor == 1 else [self.factor * weight for weight in weights]

    def _logits(self, increments: Sequence[Tensor]) -> Tensor:
        dtype = torch.promote_types(increments[0].dtype, torch.float32)
        # W·[F_1; …; F_s] as a sum over the blocks of W, which saves the concatenation.
        blocks = self.projection.weight.to(dtype).chunk(len(increments), dim=1)  # s tensors [logits, dim]
        logits = self.projection.bias.to(dtype)
        for increment, block in zip(increments, blocks, strict=True):
            read = increment.to(dtype)
            if self.normalizes_increments:
                read = nn.functional.layer_norm(read, read.shape[-1:])
            logits = torch.addmm(logits, read.reshape(-1, read.size(-1)), block.t())  # [R, logits]
        return logits.view(*increments[0].shape[:-1], -1)


def _softmax_with_zero(logits: Tensor) -> Tensor:
    last = logits.new_zeros(*logits.shape[:-1], 1)
    return torch.cat([logits, last], dim=-1).softmax(dim=-1)  # [.., s − 1] -> [.., s]


_gate = partial(
    ProjectedCoefficients,
    link=_softmax_with_zero,
    inverse=lambda weights: [math.log(b / weights[-1]) for b in weights[:-1]],
)

# Builders of coefficients from a tableau and the width of the state.
COEFFICIENTS: dict[str, Callable[..., nn.Module]] = {
    "tableau": lambda tableau, dim: FixedCoefficients(tableau.b),
    "ones": lambda tableau, dim: FixedCoefficients((1.0,) * tableau.stages),
    "scalar": lambda tableau, dim: LearnedCoefficients(tableau.stages),
    "vector": lambda tableau, dim: LearnedCoefficients(tableau.stages, dim),
    "ema": lambda tableau, dim: EMACoefficients(tableau.stages, 1),
    "ema-vector": lambda tableau, dim: EMACoefficients(tableau.stages, dim),
    "gate": _gate,
    "normalised-gate": partial(_gate, normalizes_increments=True),
    "sigmoid": partial(
        ProjectedCoefficients, link=torch.sigmoid, inverse=lambda weights: [math.log(b / (1 - b)) for b in weights]
    ),
    "tanh": partial(ProjectedCoefficients, link=torch.tanh, inverse=lambda weights: [math.atanh(b) for b in weights]),
}
GATES = ("gate", "normalised-gate")
GATE_SUMS = ("one", "stages")
GATE_STARTS = ("scheme", "xavier")
PROJECTED = (*GATES, "sigmoid", "tanh")
STEP_LENGTHS = ("scalar", "vector")  # weigh a single stage, too
LEARNED = (*STEP_LENGTHS, "ema", "ema-vector", *PROJECTED)


def build_coefficients(
    name: str, tableau: ButcherTableau, dim: int, gate_sum: str = "one", gate_start: str = "scheme"
) -> nn.Module:
    """Build the coefficients called ``name`` for the stages of ``tableau`` on states of width ``dim``.

    :param gate_sum: one of ``GATE_SUMS``, the sum of a gate's weights; with ``stages``, which is ours, and two Heun
        stages training starts from coefficients 1, and a step keeps the size of two layers
    :param gate_start: one of ``GATE_STARTS``, where the W of weights that read the increments starts
    """
    options: dict[str, Any] = {"start": gate_start} if name in PROJECTED else {}
    if name in GATES and gate_sum == "stages":
        options["factor"] = tableau.stages
    return COEFFICIENTS[name](tableau, dim, **options)
