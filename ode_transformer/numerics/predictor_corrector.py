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

    z_1 = x_n,  z_j = r + Σ_{i<j} a_ji u(z_i),  r = x_n              stages
    P = r + Σ_j γ_j u(z_j);  P = u(x_n) if there is one stage        prediction
    s_n = LN^p_n(P)
    c = Σ_{i≤n} W[n, i] s_i,  s_n ← LN_n(u(c))                       correction, r times
    x_{n+1} = Σ_{i≤n} W'[n, i] s_i

    pcformer2, pcformer4    Heun's and RK4's stages, one correction; in the papers γ_j = α (1 − α)^(s−j)
    iiet                    one stage, three corrections

With normalised stages r = LN_r(x_n), and the prediction sums LN_j(u(z_j)). The output form has no step size, adds the
whole layer to x_n and normalises the sums: it solves no equation, and its order is 0. Layers are blocks, as elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor, nn

from ode_transformer.numerics.coefficients import build_coefficients
from ode_transformer.numerics.depth import Block, DepthState, WeighingScheme
from ode_transformer.numerics.recurrences import Recurrence, RecurrenceScheme, register_recurrence
from ode_transformer.numerics.runge_kutta import VectorField, add_weighted, stage_increments, weighted_sum
from ode_transformer.numerics.tableau import ButcherTableau, get_tableau


class PredictorCorrectorScheme(WeighingScheme, RecurrenceScheme):
    """Base of the schemes of this module.

    :param predictor: stages of the prediction
    :param iterations: number of corrections, at least 1
    :param coefficients: weights of the stages in the prediction; by default the tableau's
    """

    def __init__(
        self, dim: int, predictor: ButcherTableau, iterations: int, coefficients: Sequence[nn.Module] | None
    ) -> None:
        super().__init__(coefficients or [build_coefficients("tableau", predictor, dim)])
        self.predictor, self.iterations = predictor, iterations


@dataclass(frozen=True)
class IncrementsOfEarlierBlocks(DepthState):
    """Depth state with increments of earlier blocks.

    :param increments: F(y_{n−1}), F(y_{n−2}), …, as far as later blocks read them, each [.., dim]
    """

    increments: tuple[Tensor, ...] = field(default=(), kw_only=True)


class IncrementCorrection(PredictorCorrectorScheme):
    """Increment form.

    :param blocks: number of blocks
    :param beta: β_0, β_1, …
    """

    def __init__(
        self,
        blocks: int,
        dim: int,
        predictor: ButcherTableau,
        beta: tuple[float, ...],
        iterations: int,
        coefficients: Sequence[nn.Module] | None = None,
    ) -> None:
        super().__init__(dim, predictor, iterations, coefficients)
        self.beta = beta
        self.remembers = len(beta) > 2
        # In a stack that is too short for the corrector no block reads an earlier increment.
        self.earlier_increments = len(beta) - 2 if self.remembers and blocks > len(beta) - 2 else 0

    def start(self, y0: Tensor) -> DepthState:
        return IncrementsOfEarlierBlocks(y0) if self.remembers else DepthState(y0)

    def step_block(self, field: VectorField, depth_state: DepthState) -> DepthState:
        y, block = depth_state.y, depth_state.depth
        earlier = self.layer_inputs(depth_state)[1:]
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
        remembered = [increment.view_as(y) for increment in (increments[0], *earlier)[: self.earlier_increments]]
        return self._state(prediction, block + 1, remembered)

    def _state(self, y: Tensor, depth: int, increments: Sequence[Tensor]) -> DepthState:
        if not self.remembers:
            return DepthState(y, depth)
        return IncrementsOfEarlierBlocks(y, depth, increments=tuple(increments))

    def layer_inputs(self, depth_state: DepthState) -> tuple[Tensor, ...]:
        """Return y_n, F(y_{n−1}), F(y_{n−2}), …"""
        earlier = depth_state.increments if isinstance(depth_state, IncrementsOfEarlierBlocks) else ()
        return depth_state.y, *earlier

    def skip_layer(self, outputs: Sequence[Tensor], layer: Sequence[Block], depth_state: DepthState) -> DepthState:
        y, *increments = outputs
        return self._state(y, depth_state.depth + sum(block.stepped for block in layer), increments)


@dataclass(frozen=True)
class OutputsState(DepthState):
    """Depth state with the normalised outputs of all earlier blocks.

    :param history: s_0 … s_n, each [.., dim]
    :param earlier_sum: Σ_{i≤n} W[n + 1, i] s_i, what the next correction reads of them, [.., dim]
    :param layer_outputs: u(c) of the last layer's blocks, before it is normalised, each [.., dim]
    """

    history: tuple[Tensor, ...] = field(kw_only=True)
    earlier_sum: Tensor = field(kw_only=True)
    layer_outputs: tuple[Tensor, ...] = field(default=(), kw_only=True)


class OutputCorrection(PredictorCorrectorScheme):
    """Output form, with W as ``weight`` and W' as ``output_weight``, which start at the mean.

    :param blocks: number of blocks
    :param normalize_stages: normalise what the prediction sums, by LN_r and LN_j that all blocks share
    """

    def __init__(
        self,
        blocks: int,
        dim: int,
        predictor: ButcherTableau,
        iterations: int,
        coefficients: Sequence[nn.Module] | None = None,
        normalize_stages: bool = False,
    ) -> None:
        super().__init__(dim, predictor, iterations, coefficients)
        self.weight = nn.Parameter(mean_weights(blocks))
        self.output_weight = nn.Parameter(mean_weights(blocks))
        self.predicted_norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(blocks))
        self.corrected_norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(blocks))
        stages = predictor.stages if normalize_stages else 0
        self.residual_norm = nn.LayerNorm(dim) if stages else nn.Identity()
        self.stage_norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(stages))

    def start(self, y0: Tensor) -> OutputsState:
        # A view, so that its gradient is that of what reads x_1, without that of the sums over s_0.
        return OutputsState(y0.view_as(y0), history=(y0,), earlier_sum=self._earlier_sum((y0,)))

    def step(self, layer: Sequence[Block], depth_state: DepthState) -> OutputsState:
        assert isinstance(depth_state, OutputsState)
        next_state = super().step(layer, replace(depth_state, layer_outputs=()))
        assert isinstance(next_state, OutputsState)
        return next_state

    def step_block(self, field: VectorField, depth_state: DepthState) -> OutputsState:
        assert isinstance(depth_state, OutputsState)
        block = depth_state.depth
        own_weight = self.weight[block + 1, block + 1]
        s = self.predicted_norms[block](self._predict(field, depth_state.y, block))
        for _ in range(self.iterations):
            output = _layer_output(field, add_weighted(depth_state.earlier_sum, (own_weight,), (s,)))
            s = self.corrected_norms[block](output)
        return self._add(output, s, depth_state)

    def _predict(self, field: VectorField, x: Tensor, block: int) -> Tensor:
        outputs = [_layer_output(field, x)]
        if self.predictor.stages == 1:
            return outputs[0]
        residual = self.residual_norm(x)
        for row in self.predictor.a[1:]:
            outputs.append(_layer_output(field, add_weighted(residual, row, outputs)))
        if len(self.stage_norms):
            outputs = [norm(output) for norm, output in zip(self.stage_norms, outputs, strict=True)]
        return add_weighted(residual, self.weigh_stages(block, outputs), outputs)

    def _add(self, output: Tensor, s: Tensor, depth_state: OutputsState) -> OutputsState:
        """Return the state after a block that returned ``output``, normalised ``s``."""
        history, depth = (*depth_state.history, s), depth_state.depth + 1
        return OutputsState(
            weighted_sum(self.output_weight[depth, : depth + 1].unbind(), history),
            depth,
            history=history,
            earlier_sum=self._earlier_sum(history),
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

    def layer_inputs(self, depth_state: DepthState) -> tuple[Tensor, ...]:
        """Return x and the sum over earlier blocks that the correction reads."""
        assert isinstance(depth_state, OutputsState)
        return depth_state.y, depth_state.earlier_sum

    def layer_outputs(self, depth_state: DepthState) -> tuple[Tensor, ...]:
        """Return the corrected outputs of the layer's blocks, before they are normalised and combined."""
        assert isinstance(depth_state, OutputsState)
        return depth_state.layer_outputs

    def skip_layer(self, outputs: Sequence[Tensor], layer: Sequence[Block], depth_state: DepthState) -> OutputsState:
        assert isinstance(depth_state, OutputsState)
        next_state = replace(depth_state, layer_outputs=())
        for output in outputs:
            next_state = self._add(output, self.corrected_norms[next_state.depth](output), next_state)
        return next_state


def _layer_output(field: VectorField, z: Tensor) -> Tensor:
    """Return u(z) = z + F(z)."""
    return add_weighted(z, (1.0,), (field(z),))


def mean_weights(layers: int) -> Tensor:
    """Return the lower triangular matrix [layers + 1, layers + 1] whose row n is the mean of n + 1 states."""
    return torch.ones(layers + 1, layers + 1).tril() / torch.arange(1, layers + 2)[:, None]


@dataclass(frozen=True, kw_only=True)
class PredictorCorrector(Recurrence):
    """Entry of a predictor–corrector scheme.

    :param predictor: tableau whose stages predict
    :param iterations: number of corrections, unless the user chooses another
    :param outputs: the output form
    """

    predictor: ButcherTableau
    iterations: int
    outputs: bool


def _entry(
    name: str, order: int, predictor: str, iterations: int, source: str, beta: tuple[float, ...] = ()
) -> PredictorCorrector:
    """Return the entry of a scheme in increment form, or in output form if it has no β."""
    tableau = get_tableau(predictor)
    build = partial(IncrementCorrection, beta=beta) if beta else OutputCorrection
    return PredictorCorrector(
        name,
        order,
        partial(build, predictor=tableau, iterations=iterations),
        source,
        stages=tableau.stages + iterations,
        remembers=len(beta) not in (1, 2),
        trained=not beta,
        predictor=tableau,
        iterations=iterations,
        outputs=not beta,
    )


for _scheme in (
    _entry("pcformer2", 0, "heun", 1, "Li et al. 2024 and its released code"),
    _entry("pcformer4", 0, "rk4", 1, "Li et al. 2024 and its released code"),
    _entry("iiet", 0, "euler", 3, "Liu et al. 2025 and its released code"),
    _entry("implicit-euler", 1, "euler", 3, "the increment form of iiet", (1.0,)),
    _entry("heun-moulton", 2, "heun", 1, "the increment form of pcformer2", (1 / 2, 1 / 2)),
    _entry("rk4-moulton", 4, "rk4", 1, "the increment form of pcformer4", (9 / 24, 19 / 24, -5 / 24, 1 / 24)),
):
    register_recurrence(_scheme)
