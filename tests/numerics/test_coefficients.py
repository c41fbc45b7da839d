"""The weights of the increments, and what the papers claim of them."""

import pytest
import torch
from schemes_for_tests import runge_kutta_step

from ode_transformer.numerics import COEFFICIENTS, GATES, TABLEAUS, build_coefficients, get_tableau

DIM = 6


def make(name: str, scheme: str = "rk2", gate_sum: str = "one") -> torch.nn.Module:
    return build_coefficients(name, get_tableau(scheme), DIM, gate_sum).double()


def f(y: torch.Tensor) -> torch.Tensor:
    return torch.tanh(y.roll(1, -1)) + 0.1 * y


@pytest.mark.parametrize("name", GATES)
def test_a_gate_whose_weights_sum_to_the_stages_starts_as_ones(name: str) -> None:
    y = torch.randn(3, DIM, dtype=torch.float64)
    step = runge_kutta_step(f, y, get_tableau("rk2"), make(name, gate_sum="stages"))
    torch.testing.assert_close(step, runge_kutta_step(f, y, get_tableau("rk2"), make("ones")), rtol=0, atol=1e-6)


PROJECTED = [*GATES, "sigmoid", "tanh"]
POSITIVE = [t.name for t in TABLEAUS if t.stages > 1 and min(t.b) > 0 and t.order > 0]


@pytest.mark.parametrize("name", PROJECTED)
@pytest.mark.parametrize("scheme", POSITIVE)
def test_what_is_read_from_the_increments_starts_as_the_scheme(scheme: str, name: str) -> None:
    tableau = get_tableau(scheme)
    y = torch.randn(2, 3, DIM, dtype=torch.float64)
    step = runge_kutta_step(f, y, tableau, make(name, scheme))
    torch.testing.assert_close(step, runge_kutta_step(f, y, tableau), rtol=0, atol=1e-6)


def test_a_gate_can_start_by_chance_as_released() -> None:
    """Xavier-uniform, and no other random number of a model changes."""

    def build(start: str) -> tuple[torch.nn.Linear, torch.Tensor]:
        torch.manual_seed(1)
        return build_coefficients("gate", get_tableau("rk2"), 500, gate_start=start).projection, torch.rand(1)

    (projection, following), (_, following_of_scheme) = build("xavier"), build("scheme")
    bound = (6 / 1001) ** 0.5
    assert 0.99 * bound < projection.weight.abs().max() <= bound
    assert projection.bias.item() == 0
    assert following == following_of_scheme


@pytest.mark.parametrize("coefficients", list(COEFFICIENTS))
def test_gradient_identity_of_rk2(coefficients: str) -> None:
    """∂y'/∂y = ½(1 + g), and g for γ = 1; g = (1 + F'(z))(1 + F'(y)), z = y + F(y) (2022, Eqs. 20-24)."""
    y = torch.randn(DIM, dtype=torch.float64)
    weigh = make(coefficients)
    got = torch.autograd.functional.jacobian(lambda y: runge_kutta_step(f, y, get_tableau("rk2"), weigh), y)
    eye = torch.eye(DIM, dtype=torch.float64)
    slope = [eye + torch.autograd.functional.jacobian(f, point) for point in (y + f(y), y)]
    g = slope[0] @ slope[1]
    expected = g if coefficients in ("ones", "scalar", "vector") else (eye + g) / 2
    if coefficients.startswith("ema"):  # γ = 1/4, 1/2 at the start: ∂y'/∂y = I + F'(y)/4 + (g − I − F'(y))/2
        expected = eye + (slope[1] - eye) / 4 + (g - slope[1]) / 2
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", PROJECTED)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_are_computed_in_float32(dtype: torch.dtype, name: str) -> None:
    """For increments of half precision, and under autocast."""
    gate = make(name).to(dtype)
    torch.nn.init.normal_(gate.projection.weight)
    increments = [100 * torch.randn(4, DIM, dtype=dtype) for _ in range(2)]
    weights = gate(increments)
    assert all(w.dtype == torch.float32 and w.isfinite().all() for w in weights)
    exact = gate.float()([i.float() for i in increments])
    torch.testing.assert_close(weights, exact, rtol=1e-4, atol=1e-4)
    with torch.autocast("cpu", dtype=dtype):
        torch.testing.assert_close(gate([i.float() for i in increments]), exact)
