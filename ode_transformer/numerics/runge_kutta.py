"""Explicit Runge–Kutta steps.

F_i = f(y + h Σ_{j<i} a_ij F_j),   y' = y + h Σ_i γ_i F_i      ODE Transformer (2022) Eqs. 8-11, h outside of F

A normalised step adds LN(Σ_i γ_i F_i), the normalisation before the sum of Peri-LN (Kim et al. 2025, arXiv 2502.02732).
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from ode_transformer.numerics.scheme import Field, Scheme, module_of_block
from ode_transformer.numerics.tableau import ButcherTableau

VectorField = Callable[[Tensor], Tensor]
Weight = float | Tensor


def add_weighted(y: Tensor, weights: Sequence[Weight], increments: Sequence[Tensor], step_size: float = 1.0) -> Tensor:
    """Return y + h Σ_i w_i F_i, summed in float32 if ``y`` has half precision; y itself where nothing is added.

    :param y: any shape that broadcasts to that of the increments
    :param weights: numbers, or tensors that broadcast against the increments; a number 0 costs nothing
    :param increments: as many tensors as weights
    :param step_size: h
    """
    pairs = zip(weights, increments, strict=True)
    terms = [(weight, increment) for weight, increment in pairs if isinstance(weight, Tensor) or weight != 0]
    if not terms:
        return y
    if len(terms) == 1 and y.device.type != "cpu" and y.dtype == terms[0][1].dtype:
        weight, increment = terms[0]
        if not isinstance(weight, Tensor):  # a GPU computes this sum in float32; a CPU would round the weight before
            return torch.add(y, increment, alpha=weight * step_size)
    total = y.to(torch.promote_types(y.dtype, torch.float32))
    for weight, increment in terms:
        if isinstance(weight, Tensor):
            total = torch.addcmul(total, weight, increment, value=step_size)
        else:
            total = torch.add(total, increment, alpha=weight * step_size)
    return total.to(y.dtype)


def weighted_sum(weights: Sequence[Weight], terms: Sequence[Tensor], step_size: float = 1.0) -> Tensor:
    """Return h Σ_i w_i x_i, summed as :func:`add_weighted` does; not all weights are the number 0."""
    zero = terms[0].new_zeros(1)  # broadcasts: the sum begins without a tensor of zeros
    return add_weighted(zero, weights, terms, step_size)


class RungeKutta(Scheme):
    """Runge–Kutta steps over each block, from t = 0 to t = h.

    :param tableau: the scheme
    :param coefficients: one set for each block, or a single set that all blocks share; the tableau's by default
    :param steps: N steps of size h/N for each block; stage i of step n is stage n s + i of f
    :param step_size: h
    :param norms: for each block the normalisation of what a step adds; empty for none
    """

    def __init__(
        self,
        tableau: ButcherTableau,
        coefficients: Sequence[nn.Module] = (),
        steps: int = 1,
        step_size: float = 1.0,
        norms: Sequence[nn.Module] = (),
    ) -> None:
        super().__init__()
        self.coefficients, self.norms = nn.ModuleList(coefficients), nn.ModuleList(norms)
        self.tableau, self.steps, self.step_size = tableau, steps, step_size

    def forward(self, f: Field, y: Tensor, state: None, block: int) -> tuple[Tensor, None]:
        h, weights = self.step_size / self.steps, self.tableau.b
        for step in range(self.steps):
            increments: list[Tensor] = []
            for stage, row in enumerate(self.tableau.a, step * self.tableau.stages):
                increments.append(f(add_weighted(y, row, increments, h), stage))
            if self.coefficients:
                weights = module_of_block(self.coefficients, block)(increments)
            if self.norms:
                y = y + self.norms[block](weighted_sum(weights, increments, h))
            else:
                y = add_weighted(y, weights, increments, h)
        return y, state


def runge_kutta_steps(
    field: VectorField, y: Tensor, tableau: ButcherTableau, steps: int, duration: float = 1.0
) -> Tensor:
    """Return y(``duration``) of y' = field(y) by equal steps."""
    return RungeKutta(tableau, steps=steps, step_size=duration)(lambda y, _: field(y), y, None, 0)[0]
