"""Predictor–corrector schemes: the stages of a tableau predict, evaluations at the prediction correct it.

Increment form, a solver of y' = F(y):

    P = y_n + Σ_j γ_j F_j                                            prediction: a step of the tableau
    P ← y_n + β_0 F(P) + β_1 F(y_n) + β_2 F(y_{n−1}) + …             correction, r times; then y_{n+1} = P

    implicit-euler    Euler,          β = 1: the iteration for y_{n+1} = y_n + F(y_{n+1})
    heun-moulton      Heun,           β = 1/2, 1/2: the trapezoidal rule
    rk4-moulton       classical RK4,  β = (9, 19, −5, 1)/24: Adams–Moulton; F(P) replaces the tableau's last increment
                      in the first two blocks, which have no y_{n−2}

Output form, PCformer (Li et al. 2024) and IIET (Liu et al. 2025) as released. u(z) = z + F(z) is the whole layer, x_n
enters layer n ≥ 1, s_0 = x_1 is the embedding, W and W' are lower triangular:

    z_1 = x_n,  z_j = x_n + Σ_{i<j} a_ji u(z_i)                      stages
    P = x_n + Σ_j γ_j u(z_j);  P = u(x_n) if there is one stage      prediction
    s_n = LN^p_n(P)
    c = Σ_{i≤n} W[n, i] s_i,  s_n ← LN_n(u(c))                       correction, r times
    x_{n+1} = Σ_{i≤n} W'[n, i] s_i

    pcformer2, pcformer4    Heun's and RK4's stages, one correction; in the papers γ_j = α (1 − α)^(s−j)
    iiet                    one stage, three corrections

The output form has no step size, adds the whole layer to x_n and normalises the sums: it solves no equation, and its
order is 0. Layers are blocks, as elsewhere.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ode_transformer.numerics.coefficients import FixedCoefficients
from ode_transformer.numerics.runge_kutta import add_weighted, weighted_sum
from ode_transformer.numerics.scheme import Field, Scheme, module_of_block
from ode_transformer.numerics.tableau import ButcherTableau


class IncrementCorrection(Scheme):
    """Increment form. The state is F(y_{n−1}), F(y_{n−2}), …, as far as later blocks read them.

    :param predictor: stages of the prediction
    :param beta: β_0, β_1, …
    :param iterations: number of corrections, at least 1
    :param coefficients: weights of the stages in the prediction; by default the tableau's
    """

    def __init__(
        self,
        blocks: int,
        dim: int,
        predictor: ButcherTableau,
        beta: tuple[float, ...],
        iterations: int,
        coefficients: Sequence[nn.Module] = (),
    ) -> None:
        super().__init__()
        self.coefficients = nn.ModuleList(coefficients or [FixedCoefficients(predictor.b)])
        self.predictor, self.iterations, self.beta = predictor, iterations, beta
        # In a stack that is too short for the corrector no block reads an earlier increment.
        self.earlier_increments = max(len(beta) - 2, 0) if blocks > len(beta) - 2 else 0

    def start(self, y0: Tensor) -> Sequence[Tensor]:
        return ()

    def forward(self, f: Field, y: Tensor, state: Sequence[Tensor], block: int) -> tuple[Tensor, Sequence[Tensor]]:
        increments: list[Tensor] = []
        for stage, row in enumerate(self.predictor.a):
            increments.append(f(add_weighted(y, row, increments), stage))
        prediction = add_weighted(y, module_of_block(self.coefficients, block)(increments), increments)
        if len(state) < len(self.beta) - 2:
            *first, last = self.predictor.b
            weights, corrected = (last, *first), tuple(increments[:-1])
        else:
            weights, corrected = self.beta, (increments[0], *state)[: len(self.beta) - 1]
        for stage in range(self.predictor.stages, self.predictor.stages + self.iterations):
            prediction = add_weighted(y, weights, (f(prediction, stage), *corrected))
        return prediction, (increments[0], *state)[: self.earlier_increments]


class Outputs(NamedTuple):
    """State of the output form.

    :param earlier_sum: Σ_{i≤n} W[n + 1, i] s_i, what the next correction reads
    :param history: s_0 … s_n
    """

    earlier_sum: Tensor
    history: tuple[Tensor, ...]


class OutputCorrection(Scheme):
    """Output form, with W as ``weight`` and W' as ``output_weight``, which start at the mean.

    The parameters are those of :class:`IncrementCorrection`.
    """

    def __init__(
        self, blocks: int, dim: int, predictor: ButcherTableau, iterations: int, coefficients: Sequence[nn.Module] = ()
    ) -> None:
        super().__init__()
        self.coefficients = nn.ModuleList(coefficients or [FixedCoefficients(predictor.b)])
        self.predictor, self.iterations = predictor, iterations
        self.weight = nn.Parameter(mean_weights(blocks))
        self.output_weight = nn.Parameter(mean_weights(blocks))
        self.predicted_norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(blocks))
        self.corrected_norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(blocks))

    def start(self, y0: Tensor) -> Outputs:
        return Outputs(self._earlier_sum((y0,)), (y0,))

    def forward(self, f: Field, y: Tensor, state: Outputs, block: int) -> tuple[Tensor, Outputs]:
        own_weight, stages = self.weight[block + 1, block + 1], self.predictor.stages
        s = self.predicted_norms[block](self._predict(f, y, block))
        for stage in range(stages, stages + self.iterations):
            c = add_weighted(state.earlier_sum, (own_weight,), (s,))
            output = c + f(c, stage)
            if stage < stages + self.iterations - 1:
                s = self.corrected_norms[block](output)
        return self.append(output, state, block)

    def append(self, output: Tensor, state: Outputs, block: int) -> tuple[Tensor, Outputs]:
        """Return y and the state after a block that has returned ``output``, not yet normalised."""
        history = (*state.history, self.corrected_norms[block](output))
        y = weighted_sum(self.output_weight[block + 1, : block + 2].unbind(), history)
        return y, Outputs(self._earlier_sum(history), history)

    def _predict(self, f: Field, x: Tensor, block: int) -> Tensor:
        outputs = [x + f(x, 0)]
        if self.predictor.stages == 1:
            return outputs[0]
        for stage, row in enumerate(self.predictor.a[1:], 1):
            z = add_weighted(x, row, outputs)
            outputs.append(z + f(z, stage))
        return add_weighted(x, module_of_block(self.coefficients, block)(outputs), outputs)

    def _earlier_sum(self, history: Sequence[Tensor]) -> Tensor:
        number = len(history)
        if number == len(self.weight):  # nothing follows the last block
            return torch.zeros_like(history[0])
        return weighted_sum(self.weight[number, :number].unbind(), history)

    def weights(self, block: int) -> tuple[Tensor, ...]:
        """Return W[n, 0 … n], then W'[n, 0 … n], for the block of number n − 1."""
        return tuple(w for matrix in (self.weight, self.output_weight) for w in matrix[block + 1, : block + 2])


def mean_weights(layers: int) -> Tensor:
    """Return the lower triangular matrix [layers + 1, layers + 1] whose row n is the mean of n + 1 states."""
    return torch.ones(layers + 1, layers + 1).tril() / torch.arange(1, layers + 2)[:, None]
