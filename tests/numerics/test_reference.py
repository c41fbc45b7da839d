"""Solutions that count as exact are as near to the known ones as they say."""

import math

import pytest
import torch

from ode_transformer.numerics import solve_to_tolerance

A = torch.tensor([[-0.3, 1.0, 0.2], [-0.8, 0.1, 0.5], [0.4, -0.6, -0.2]], dtype=torch.float64)
Y0 = torch.tensor([[0.9, -0.4, 0.7], [0.1, 2.0, -1.0]], dtype=torch.float64)


PROBLEMS = {
    "linear": (lambda y: y @ A.T, Y0, lambda t: Y0 @ torch.matrix_exp(t * A).T),
    "logistic": (lambda y: y * (1 - y), Y0.abs(), lambda t: 1 / (1 + (1 / Y0.abs() - 1) * math.exp(-t))),
    "kink": (  # of f at 1, as ReLU has one: y grows as e^t up to 1, from there on linearly
        lambda y: y.clamp(max=1.0),
        torch.full((1,), 0.5, dtype=torch.float64),
        lambda t: torch.tensor([1 + t - math.log(2)], dtype=torch.float64),
    ),
}


@pytest.mark.parametrize("tolerance", [1e-3, 1e-7])
@pytest.mark.parametrize("duration", [1.0, 2.5])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_solution_is_within_its_bound(problem: str, duration: float, tolerance: float) -> None:
    field, y0, solution = PROBLEMS[problem]
    found = solve_to_tolerance(field, y0, tolerance, duration, max_steps=2**14)
    assert found.bound <= tolerance
    assert float((found.y - solution(duration)).abs().max()) <= found.bound + 1e-14


def test_a_smooth_field_keeps_the_order_and_a_kink_costs_it() -> None:
    coarse, fine = (solve_to_tolerance(*PROBLEMS["linear"][:2], 0.0, max_steps=steps).bound for steps in (32, 64))
    assert coarse / fine == pytest.approx(2**4, rel=0.1)
    smooth, kink = (solve_to_tolerance(*PROBLEMS[name][:2], 1e-8, max_steps=2**14) for name in ("linear", "kink"))
    assert kink.steps > 16 * smooth.steps


def test_the_end_of_the_steps_is_told() -> None:
    found = solve_to_tolerance(lambda y: -400 * y, Y0, 1e-6, max_steps=64)
    assert found.steps == 64
    assert found.bound == math.inf
    assert solve_to_tolerance(lambda y: -400 * y, Y0, 1e-6, max_steps=2**15).bound <= 1e-6
    assert solve_to_tolerance(lambda y: y**2, torch.full((1,), 30.0).double(), 1e-6, max_steps=64).bound == math.inf
