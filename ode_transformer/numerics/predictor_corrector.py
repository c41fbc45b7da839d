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

import torch
from torch import Tensor, nn

from ode_transformer.numerics.coefficients import TableauCoefficients
from ode_transformer.numerics.depth import (
    BlockHistory,
    BlockHistoryScheme,
    DepthState,
    RecurrenceScheme,
    WeighingScheme,
)
from ode_transformer.numerics.runge_kutta import VectorField, add_weighted, stage_increments, weighted_sum
from ode_transformer.numerics.tableau import ButcherTableau


class PredictorCorrectorScheme(WeighingScheme, RecurrenceScheme):
    """Base of the schemes of this module.

    :param predictor: stages of the prediction
    :param iterations: number of corrections, at least 1
    :param coefficients: weights of the stages in the prediction; by default the tableau's
    """

    def __init__(self, dim: int, predictor: ButcherTableau, iterations: int, coefficients: Sequence[nn.Module]) -> None:
        super().__init__(coefficients or [TableauCoefficients(predictor, dim)])
        self.predictor, self.iterations = predictor, iterations


class IncrementCorrection(PredictorCorrectorScheme):
    """Increment form; its memory is F(y_{n−1}), F(y_{n−2}), …, as far as later blocks read them.

    :param beta: β_0, β_1, …
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
        super().__init__(dim, predictor, iterations, coefficients)
        self.beta = beta
        # In a stack that is too short for the corrector no block reads an earlier increment.
        self.earlier_increments = max(len(beta) - 2, 0) if blocks > len(beta) - 2 else 0

    def step_block(self, field: VectorField, depth_state: DepthState) -> DepthState:
        y, block, earlier = depth_state.y, depth_state.depth, depth_state.memory
        increments = stage_increments(field, y, self.predictor)
        prediction = add_weighted(y, self.weigh_stages(block, increments), increments)
        if len(earlier) < len(self.beta) - 2:
            *first, last = self.predictor.b
            weights, corrected = (last, *first), increments[:-1]
        else:
            weights, corrected = self.beta, (increments[0], *earlier)[: len(self.beta) - 1]
        for _ in range(self.iterations):
            prediction = add_weighted(y, weights, (field(prediction), *corrected))
        # Views, so that their gradients are those of the steps that read them later, without that of this one.
        remembered = (increment.view_as(y) for increment in (increments[0], *earlier)[: self.earlier_increments])
        return DepthState(prediction, block + 1, memory=tuple(remembered))


class OutputCorrection(PredictorCorrectorScheme, BlockHistoryScheme):
    """Output form, with W as ``weight`` and W' as ``output_weight``, which start at the mean.

    Its history is s_0 … s_n; its memory Σ_{i≤n} W[n + 1, i] s_i, what the next correction reads of them. The outputs of
    a layer are u(c) of its blocks, before they are normalised.
    """

    def __init__(
        self,
        blocks: int,
        dim: int,
        predictor: ButcherTableau,
        iterations: int,
        coefficients: Sequence[nn.Module] = (),
    ) -> None:
        super().__init__(dim, predictor, iterations, coefficients)
        self.weight = nn.Parameter(mean_weights(blocks))
        self.output_weight = nn.Parameter(mean_weights(blocks))
        self.predicted_norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(blocks))
        self.corrected_norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(blocks))

    def start(self, y0: Tensor) -> BlockHistory:
        # A view, so that its gradient is that of what reads x_1, without that of the sums over s_0.
        return BlockHistory(y0.view_as(y0), memory=(self._earlier_sum((y0,)),), history=(y0,))

    def step_block(self, field: VectorField, depth_state: DepthState) -> BlockHistory:
        assert isinstance(depth_state, BlockHistory)
        block, (earlier_sum,) = depth_state.depth, depth_state.memory
        own_weight = self.weight[block + 1, block + 1]

        def correct(s: Tensor) -> Tensor:
            return _layer_output(field, add_weighted(earlier_sum, (own_weight,), (s,)))

        output = correct(self.predicted_norms[block](self._predict(field, depth_state.y, block)))
        for _ in range(self.iterations - 1):
            output = correct(self.corrected_norms[block](output))
        return self.add(output, depth_state)

    def _predict(self, field: VectorField, x: Tensor, block: int) -> Tensor:
        outputs = [_layer_output(field, x)]
        if self.predictor.stages == 1:
            return outputs[0]
        for row in self.predictor.a[1:]:
            outputs.append(_layer_output(field, add_weighted(x, row, outputs)))
        return add_weighted(x, self.weigh_stages(block, outputs), outputs)

    def add(self, output: Tensor, depth_state: BlockHistory) -> BlockHistory:
        depth = depth_state.depth + 1
        history = (*depth_state.history, self.corrected_norms[depth - 1](output))
        return BlockHistory(
            weighted_sum(self.output_weight[depth, : depth + 1].unbind(), history),
            depth,
            memory=(self._earlier_sum(history),),
            history=history,
            layer_outputs=(*depth_state.layer_outputs, output),
        )

    def _earlier_sum(self, history: Sequence[Tensor]) -> Tensor:
        number = len(history)
        if number == len(self.weight):  # nothing follows the last block
            return torch.zeros_like(history[0])
        return weighted_sum(self.weight[number, :number].unbind(), history)

    def weights(self, block: int) -> tuple[Tensor, ...]:
        """Return W[n, 0 … n], then W'[n, 0 … n], for the block of number n − 1."""
        return tuple(
            weight for matrix in (self.weight, self.output_weight) for weight in matrix[block + 1, : block + 2]
        )


def _layer_output(field: VectorField, z: Tensor) -> Tensor:
    """Return u(z) = z + F(z)."""
    return add_weighted(z, (1.0,), (field(z),))


def mean_weights(layers: int) -> Tensor:
    """Return the lower triangular matrix [layers + 1, layers + 1] whose row n is the mean of n + 1 states."""
    return torch.ones(layers + 1, layers + 1).tril() / torch.arange(1, layers + 2)[:, None]
