"""One explicit Runge–Kutta step over any vector field.

F_i = f(y + h Σ_{j<i} a_ij F_j),   y' = y + h Σ_i γ_i F_i      ODE Transformer (2022) Eqs. 8-11, h outside of F

A normalised step adds LN(Σ_i γ_i F_i), the normalisation before the sum of Peri-LN (Kim et al. 2025, arXiv 2502.02732).
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ode_transformer.numerics.tableau import ButcherTableau

VectorField = Callable[[Tensor], Tensor]
Weight = float | Tensor


def add_weighted(y: Tensor, weights: Sequence[Weight], increments: Sequence[Tensor], step_size: float = 1.0) -> Tensor:
    """Return y + h Σ_i w_i F_i, summed in float32 if ``y`` has half precision.

    :param y: any shape that broadcasts to that of the increments
    :param weights: numbers, or tensors that broadcast against the increments; a number 0 costs nothing
    :param increments: as many tensors as weights
    :param step_size: h
    """
    terms = [(w, f) for w, f in zip(weights, increments, strict=True) if isinstance(w, Tensor) or w != 0]
    if not terms:
        return y
    first = terms[0][0]
    if len(terms) == 1 and not isinstance(first, Tensor):
        return torch.add(y, terms[0][1], alpha=first * step_size).to(y.dtype)  # which rounds once
    numbers = [(w * step_size, f) for w, f in terms if not isinstance(w, Tensor)]
    tensors = [(w, f) for w, f in terms if isinstance(w, Tensor)]
    total: Tensor = _WeightedSum.apply(
        y, [w for w, _ in numbers], step_size, *(f for _, f in numbers), *(x for pair in tensors for x in pair)
    )
    return total


class _WeightedSum(torch.autograd.Function):
    """y + Σ_i n_i F_i + h Σ_j w_j G_j for numbers n and tensors w, given as F_1, …, w_1, G_1, …

    Equal numbers share a gradient, and those of half precision are not converted one by one.
    """

    generate_vmap_rule = True

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        y, ctx.numbers, ctx.step_size, *terms = inputs
        pairs = terms[len(ctx.numbers) :]
        ctx.save_for_backward(*pairs)
        ctx.save_for_forward(*pairs)
        ctx.shape = y.shape

    @staticmethod
    def forward(y: Tensor, numbers: Sequence[float], step_size: float, *terms: Tensor) -> Tensor:
        pairs = terms[len(numbers) :]
        total = y.to(torch.promote_types(y.dtype, torch.float32))
        for number, increment in zip(numbers, terms, strict=False):
            total = torch.add(total, increment, alpha=number)
        for weight, increment in zip(pairs[::2], pairs[1::2], strict=True):
            total = torch.addcmul(total, weight, increment, value=step_size)
        return total.to(y.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        pairs = ctx.saved_tensors
        scaled = {number: number * gradient for number in set(ctx.numbers)}
        gradients: list[Tensor | None] = [scaled[number] for number in ctx.numbers]
        if pairs:
            summed = gradient.to(torch.promote_types(gradient.dtype, torch.float32))
            summed = summed if ctx.step_size == 1 else ctx.step_size * summed
            for weight, increment in zip(pairs[::2], pairs[1::2], strict=True):
                gradients += [(summed * increment).sum_to_size(weight.shape), summed * weight]
        dy = gradient.sum_to_size(ctx.shape) if ctx.needs_input_grad[0] else None
        return dy, None, None, *gradients

    @staticmethod
    def jvp(ctx: Any, dy: Tensor, *tangents: Any) -> Tensor:
        pairs, terms, count = ctx.saved_tensors, tangents[2:], len(ctx.numbers)
        # The product rule: the same sum with twice as many pairs, dw_1, G_1, …, w_1, dG_1, …
        by_weight, by_increment = list(pairs), list(pairs)
        by_weight[::2], by_increment[1::2] = terms[count::2], terms[count + 1 :: 2]
        return _WeightedSum.forward(dy, ctx.numbers, ctx.step_size, *terms[:count], *by_weight, *by_increment)


def weighted_sum(weights: Sequence[Weight], terms: Sequence[Tensor], step_size: float = 1.0) -> Tensor:
    """Return h Σ_i w_i x_i, summed as :func:`add_weighted` does; not all weights are the number 0."""
    zero = terms[0].new_zeros(1)  # broadcasts: the sum begins without a tensor of zeros
    return add_weighted(zero, weights, terms, step_size)


def stage_increments(
    field: VectorField, y: Tensor, tableau: ButcherTableau, step_size: float = 1.0
) -> tuple[Tensor, ...]:
    """Return the increments F_i = f(y + h Σ_{j<i} a_ij F_j) of one step, in the order of the stages.

    ``field`` is called ``tableau.stages`` times, stage by stage.
    """
    increments: list[Tensor] = []
    for row in tableau.a:
        increments.append(field(add_weighted(y, row, increments, step_size)))
    return tuple(increments)


def runge_kutta_step(
    field: VectorField,
    y: Tensor,
    tableau: ButcherTableau,
    weigh: Callable[[Sequence[Tensor]], Sequence[Weight]] | None = None,
    step_size: float = 1.0,
    norm: nn.Module | None = None,
) -> Tensor:
    """Take one step, y + h Σ_i γ_i F_i, or y + LN(h Σ_i γ_i F_i).

    :param y: start of the step, any shape
    :param tableau: stages, and weights γ = b if ``weigh`` is None
    :param weigh: maps the increments to the weights γ, see :mod:`ode_transformer.numerics.coefficients`
    :param step_size: h
    :param norm: LN of a normalised step
    """
    increments = stage_increments(field, y, tableau, step_size)
    weights = tableau.b if weigh is None else weigh(increments)
    if norm is not None:
        return y + norm(weighted_sum(weights, increments, step_size))
    return add_weighted(y, weights, increments, step_size)


def runge_kutta_steps(
    field: VectorField,
    y: Tensor,
    tableau: ButcherTableau,
    steps: int,
    weigh: Callable[[Sequence[Tensor]], Sequence[Weight]] | None = None,
    duration: float = 1.0,
    norm: nn.Module | None = None,
) -> Tensor:
    """Take equal steps from t = 0 to t = ``duration``; the other parameters are those of :func:`runge_kutta_step`."""
    for _ in range(steps):
        y = runge_kutta_step(field, y, tableau, weigh, duration / steps, norm)
    return y
