"""Least-squares fit of a linear map to pairs of arguments and values, in one pass over them.

    minimise Σ_n ‖W x_n + b − y_n‖²        x_n in R^p, y_n in R^q, n = 1 … N

With the means x̄ and ȳ, S_xx = Σ (x_n − x̄)(x_n − x̄)ᵀ, S_yx = Σ (y_n − ȳ)(x_n − x̄)ᵀ and S_yy = Σ ‖y_n − ȳ‖²:

    W = S_yx S_xx⁺,   b = ȳ − W x̄,   R² = 1 − (S_yy − tr(W S_yxᵀ)) / S_yy

S_xx⁺ is the inverse, or the pseudo-inverse where the arguments lie in a subspace, as behind a layer normalisation:
then W is the smallest of the maps that fit equally well. Everything is computed in double precision.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

# The arguments have single precision: a direction with relatively less variation than this is rounding noise.
_PRECISION = torch.finfo(torch.float32).eps


@dataclass(frozen=True)
class LinearFit:
    """A linear map y ≈ W x + b and the quality of its fit.

    :param weight: W, [q, p]
    :param bias: b, [q]
    :param rank: number of directions in which the arguments vary, at most p
    :param r_squared: fraction of the values' variation that the map explains; 1 for a linear function
    """

    weight: Tensor
    bias: Tensor
    positions: int
    rank: int
    r_squared: float


@dataclass(frozen=True)
class LinearSums:
    """Sums over pairs of arguments and values, from which the fit is computed; x̂ is (1, x).

    :param xx: Σ x̂ x̂ᵀ, [1 + p, 1 + p]
    :param yx: Σ y x̂ᵀ, [q, 1 + p]
    :param yy: Σ ‖y‖², []
    """

    xx: Tensor
    yx: Tensor
    yy: Tensor

    @classmethod
    def of_pairs(cls, x: Tensor, y: Tensor) -> LinearSums:
        """Return the sums over N pairs, x [N, p] and y [N, q]."""
        x, y = torch.cat([torch.ones_like(x[:, :1]), x], dim=-1).double(), y.double()
        return cls(x.T @ x, y.T @ x, y.square().sum())

    def __add__(self, sums: LinearSums) -> LinearSums:
        return LinearSums(self.xx + sums.xx, self.yx + sums.yx, self.yy + sums.yy)

    def fit(self) -> LinearFit:
        """Return the linear map with the least squared error."""
        count = self.xx[0, 0]
        mean_x, mean_y = self.xx[0, 1:] / count, self.yx[:, 0] / count
        s_xx = self.xx[1:, 1:] - count * mean_x.outer(mean_x)
        s_yx = self.yx[:, 1:] - count * mean_y.outer(mean_x)
        s_yy = self.yy - count * mean_y.square().sum()
        # S_xx = V diag(λ) Vᵀ, without the directions in which x does not vary
        values, vectors = torch.linalg.eigh(s_xx)
        varies = values > len(values) * _PRECISION**2 * values.max()
        values, vectors = values[varies], vectors[:, varies]
        weight = (s_yx @ vectors / values) @ vectors.T
        unexplained = (s_yy - (weight * s_yx).sum()).clamp(min=0)
        r_squared = 1 - (unexplained / s_yy).item() if s_yy > 0 else 1.0
        return LinearFit(weight, mean_y - weight @ mean_x, int(count), len(values), r_squared)
