"""One step against the papers' formulas, written out."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from schemes_for_tests import runge_kutta_step

from ode_transformer.numerics import TABLEAUS, add_weighted, get_tableau


def f(y: torch.Tensor) -> torch.Tensor:
    return torch.tanh(y.flip(-1)) - 0.3 * y


@pytest.mark.parametrize("tableau", TABLEAUS, ids=lambda t: t.name)
def test_a_field_of_zero_leaves_y_alone_and_a_constant_field_is_exact(tableau) -> None:
    y = torch.randn(4, dtype=torch.float64)
    assert torch.equal(runge_kutta_step(torch.zeros_like, y, tableau), y)
    slope, length = torch.randn(4, dtype=torch.float64), 0.5 * sum(tableau.b)  # Σ b = 1 unless the rule solves nothing
    torch.testing.assert_close(runge_kutta_step(lambda _: slope, y, tableau, step_size=0.5), y + length * slope)


@pytest.mark.parametrize("tableau", [get_tableau("euler"), get_tableau("rk4")], ids=lambda t: t.name)
def test_a_step_can_be_differentiated_in_every_way(tableau) -> None:
    y = torch.randn(3, dtype=torch.float64)
    weights = torch.rand(tableau.stages, dtype=torch.float64)

    def step(y: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        between = runge_kutta_step(f, y, tableau, step_size=0.5)
        return runge_kutta_step(f, between, tableau, lambda _: weights.unbind(), step_size=0.5)

    at = (y, weights)
    assert torch.autograd.gradgradcheck(step, tuple(x.clone().requires_grad_() for x in at))
    expected = torch.autograd.functional.jacobian(step, at)
    for jacobian in (torch.func.jacrev(step, (0, 1))(*at), torch.func.jacfwd(step, (0, 1))(*at)):
        torch.testing.assert_close(jacobian, expected)
    ys = torch.randn(4, 3, dtype=torch.float64)
    torch.testing.assert_close(torch.func.vmap(step, (0, None))(ys, weights), step(ys, weights))


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=5), st.floats(0.1, 1))
def test_add_weighted_is_the_sum(weights: list[float], step_size: float) -> None:
    generator = torch.Generator().manual_seed(1)
    y, *terms = torch.randn(len(weights) + 1, 4, dtype=torch.float64, generator=generator)
    expected = y + step_size * sum(w * t for w, t in zip(weights, terms, strict=True))
    torch.testing.assert_close(add_weighted(y, weights, terms, step_size), expected)
    as_tensors = [torch.tensor(w, dtype=torch.float64) for w in weights]
    torch.testing.assert_close(add_weighted(y, as_tensors, terms, step_size), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sums_of_half_precision_round_once(dtype) -> None:
    generator = torch.Generator().manual_seed(2)
    y, *terms = torch.randn(5, 1000, generator=generator).to(dtype)
    weights = get_tableau("rk4").b
    exact = y.double() + sum(w * t.double() for w, t in zip(weights, terms, strict=True))
    got = add_weighted(y, weights, terms)
    assert got.dtype == dtype == add_weighted(y, (0.5,), (terms[0].float(),)).dtype
    half_ulp = torch.finfo(dtype).eps / 2 * exact.abs().clamp_min(torch.finfo(dtype).tiny)
    assert ((got.double() - exact).abs() <= 1.01 * half_ulp + 1e-6).all()
