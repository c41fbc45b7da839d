"""The weights γ_i of the increments in y + h Σ γ_i F_i: those of the tableau, or others with the same stages.

ODE Transformer (2022) 3.2: γ = b is the Runge–Kutta scheme; γ_i = 1 and trained γ_i keep the stages and give up the
order of accuracy. Each class maps the increments (F_1, …, F_s), each [.., dim], to s weights.
"""

import math
from abc import ABC, abstractmethod
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


class OnesCoefficients(TableauCoefficients):
    """γ_i = 1 (2022, Eq. 23). With two Heun stages this is the layer applied twice, not a step of the ODE."""

    def __init__(self, tableau: ButcherTableau, dim: int) -> None:
        super().__init__(tableau, dim)
        self.weights = (1.0,) * tableau.stages


class ScalarCoefficients(nn.Module):
    """γ_i: one learned number for each stage, all 1 at the start (2021; 2022 3.2).

    For one stage it is the length of the step, y + γ F(y) (ReZero, Bachlechner et al. 2020, which starts at 0).

    :param channels: shape of the weight of a stage
    """

    def __init__(self, tableau: ButcherTableau, dim: int, channels: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(tableau.stages, *channels))

    def forward(self, increments: Sequence[Tensor]) -> Sequence[Weight]:
        return self.weight.unbind()


class VectorCoefficients(ScalarCoefficients):
    """γ_i with a number for each channel (LayerScale, Touvron et al. 2021, which starts near 0)."""

    def __init__(self, tableau: ButcherTableau, dim: int) -> None:
        super().__init__(tableau, dim, (dim,))


class EMACoefficients(nn.Module):
    """γ_i = α (1 − α)^(s − i): an exponential moving average of the increments, α trained from ½ (Li et al. 2024).

    The weights sum to 1 − (1 − α)^s and not to 1, so that no tableau keeps an order of accuracy.

    :param channels: numbers that α has: 1, or one for each channel
    """

    def __init__(self, tableau: ButcherTableau, dim: int, channels: int = 1) -> None:
        super().__init__()
        self.stages = tableau.stages
        self.alpha = nn.Parameter(torch.full((channels,), 0.5))

    def forward(self, increments: Sequence[Tensor]) -> Sequence[Weight]:
        weights: list[Tensor] = [self.alpha]
        for _ in range(self.stages - 1):
            weights.append(weights[-1] * (1 - self.alpha))
        return weights[::-1]  # s tensors [1] or [dim]


class VectorEMACoefficients(EMACoefficients):
    """The exponential moving average with an α for each channel."""

    def __init__(self, tableau: ButcherTableau, dim: int) -> None:
        super().__init__(tableau, dim, channels=dim)


class ProjectedCoefficients(nn.Module, ABC):
    """γ = link(W·[F_1; …; F_s] + β): s numbers for each position, computed from the increments.

    W starts at zero and β where the link gives the tableau's weights, so training starts from the scheme itself; the
    papers do not give a start. Computed in float32 for increments of any precision, under autocast too.

    :param start: one of ``GATE_STARTS``; ``xavier`` is the released code's start of W, with which the weights differ
        from position to position before the first update
    """

    normalizes_increments = False  # W reads LN(F_i), without parameters, in the place of F_i

    def __init__(self, tableau: ButcherTableau, dim: int, start: str = "scheme") -> None:
        super().__init__()
        bias = torch.tensor(self.inverse(tableau.b))
        inputs = tableau.stages * dim
        self.projection = nn.Linear(inputs, len(bias))
        # Linear has drawn W within ±inputs^-½; to draw again would change all later random numbers.
        xavier = math.sqrt(6 * inputs / (inputs + len(bias)))
        with torch.no_grad():
            self.projection.weight.mul_(xavier if start == "xavier" else 0)
            self.projection.bias.copy_(bias)

    @staticmethod
    @abstractmethod
    def link(logits: Tensor) -> Tensor:
        """Return the weights, [.., logits] -> [.., s]."""

    @staticmethod
    @abstractmethod
    def inverse(weights: Sequence[float]) -> list[float]:
        """Return the logits that :meth:`link` maps to ``weights``."""

    def forward(self, increments: Sequence[Tensor]) -> Sequence[Weight]:
        with torch.autocast(increments[0].device.type, enabled=False):
            return self.link(self._logits(increments)).split(1, dim=-1)  # s tensors [.., 1]

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


class GateCoefficients(ProjectedCoefficients):
    """γ = softmax of s − 1 logits and a 0; two stages give the paper's g and 1 − g.

    g = sigmoid(W·[F_1; F_2] + β), y + g F_1 + (1 − g) F_2 (2022, Eqs. 25 and 26). More stages are our generalisation.

    :param sum_of_weights: one of ``GATE_SUMS``; ``stages``, which is ours, multiplies all weights by s: with two Heun
        stages training then starts from coefficients 1, and a step keeps the size of two layers
    """

    def __init__(self, tableau: ButcherTableau, dim: int, sum_of_weights: str = "one", start: str = "scheme") -> None:
        super().__init__(tableau, dim, start)
        self.total = tableau.stages if sum_of_weights == "stages" else 1

    def forward(self, increments: Sequence[Tensor]) -> Sequence[Weight]:
        weights = super().forward(increments)
        return weights if self.total == 1 else [self.total * weight for weight in weights]

    @staticmethod
    def link(logits: Tensor) -> Tensor:
        last = logits.new_zeros(*logits.shape[:-1], 1)
        return torch.cat([logits, last], dim=-1).softmax(dim=-1)  # [.., s − 1] -> [.., s]

    @staticmethod
    def inverse(weights: Sequence[float]) -> list[float]:
        return [math.log(b / weights[-1]) for b in weights[:-1]]


class NormalizedGateCoefficients(GateCoefficients):
    """The gate with W·[LN(F_1); …; LN(F_s)] + β; ours, in none of the papers.

    Increments grow in training, and W·[F_1; F_2] with them, until the published gate is 0 or 1 at every position and
    has no gradient. Normalised increments keep their size. docs/results/gates.md says where this gate ends.
    """

    normalizes_increments = True


class SigmoidCoefficients(ProjectedCoefficients):
    """γ_i = sigmoid of a logit of its own, "sigmoid, sigmoid" of 2022, Table 10.

    The paper names only the functions. That every stage reads all increments, as the gate does, is our decision.
    """

    @staticmethod
    def link(logits: Tensor) -> Tensor:
        return logits.sigmoid()

    @staticmethod
    def inverse(weights: Sequence[float]) -> list[float]:
        return [math.log(b / (1 - b)) for b in weights]


class TanhCoefficients(ProjectedCoefficients):
    """γ_i = tanh of a logit of its own, "tanh, tanh" of 2022, Table 10; its inputs as for ``sigmoid``."""

    @staticmethod
    def link(logits: Tensor) -> Tensor:
        return logits.tanh()

    @staticmethod
    def inverse(weights: Sequence[float]) -> list[float]:
        return [math.atanh(b) for b in weights]


COEFFICIENTS: dict[str, Callable[..., nn.Module]] = {
    "tableau": TableauCoefficients,
    "ones": OnesCoefficients,
    "scalar": ScalarCoefficients,
    "vector": VectorCoefficients,
    "ema": EMACoefficients,
    "ema-vector": VectorEMACoefficients,
    "gate": GateCoefficients,
    "normalised-gate": NormalizedGateCoefficients,
    "sigmoid": SigmoidCoefficients,
    "tanh": TanhCoefficients,
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

    :param gate_sum: one of ``GATE_SUMS``, the sum of a gate's weights
    :param gate_start: one of ``GATE_STARTS``, where the W of weights that read the increments starts
    """
    options = {"start": gate_start} if name in PROJECTED else {}
    if name in GATES:
        options["sum_of_weights"] = gate_sum
    return COEFFICIENTS[name](tableau, dim, **options)
