"""The one-pass fit against solvers that see all pairs at once."""

import numpy as np
import pytest
import torch

from ode_transformer.lab.analysis.layer_replacement import LinearSums


def pairs(count: int, given: int, made: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Arguments far from zero mean, of different scales, and values that are no linear function of them."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, given, generator=generator, dtype=torch.float64)
    x = x * torch.logspace(-2, 2, given, dtype=torch.float64) + 3
    y = torch.tanh(x @ torch.randn(given, made, generator=generator, dtype=torch.float64)) + 5
    return x, y


def in_parts(x: torch.Tensor, y: torch.Tensor, size: int) -> LinearSums:
    first, *others = (LinearSums.of_pairs(*part) for part in zip(x.split(size), y.split(size), strict=True))
    for other in others:
        first = first + other
    return first


@pytest.mark.parametrize("size", [7, 200])
def test_the_solution_is_that_of_numpy(size: int) -> None:
    x, y = pairs(200, 9, 4)
    fit = in_parts(x, y, size).fit()
    expected, residuals, rank, _ = np.linalg.lstsq(np.c_[x, np.ones(200)], y.numpy(), rcond=None)
    np.testing.assert_allclose(torch.cat([fit.weight, fit.bias[:, None]], dim=1), expected.T, rtol=1e-8, atol=1e-10)
    variation = ((y - y.mean(0)) ** 2).sum().item()
    assert fit.r_squared == pytest.approx(1 - float(np.sum(residuals)) / variation, abs=1e-10)
    assert (fit.positions, fit.rank) == (200, rank - 1)
    assert 0.1 < fit.r_squared < 0.9


def test_arguments_in_a_subspace_have_the_smallest_solution() -> None:
    """Behind a layer normalisation the entries sum to zero; in single precision they do so up to rounding."""
    x, y = pairs(300, 8, 3)
    x = torch.nn.functional.layer_norm(x, (8,)).float()
    fit = in_parts(x, y, 50).fit()
    x = x.double()
    expected = np.linalg.lstsq(x - x.mean(0), y - y.mean(0), rcond=1e-6)[0]
    assert fit.rank == 7
    np.testing.assert_allclose(fit.weight, expected.T, rtol=1e-5, atol=1e-7)
