"""Fields that act in turn, and how exact that is."""

import math

import pytest
import torch

from ode_transformer.numerics import SPLITTINGS, get_tableau, runge_kutta_step, sequential_increment, split_step


def test_the_increment_is_what_the_steps_add_in_turn() -> None:
    fields = [torch.sin, lambda y: y.flip(-1) ** 2, torch.tanh]
    y = torch.randn(2, 5, dtype=torch.float64)
    passed = y
    for field in fields:
        passed = passed + field(passed)
    torch.testing.assert_close(y + sequential_increment(fields, y), passed)


def test_a_small_increment_survives_a_large_state() -> None:
    y = torch.full((3,), 1e8)
    assert torch.equal(sequential_increment([lambda y: torch.full_like(y, 1e-3)], y), torch.full((3,), 1e-3))


# y' = A y + G(y): a linear diffusion, which mixes the entries, and a convection that acts on each entry alone; they do
# not commute, and both have flows in closed form.
A = torch.tensor([[-0.3, 1.0, 0.2], [-0.8, 0.1, 0.5], [0.4, -0.6, -0.2]], dtype=torch.float64)
Y0 = torch.tensor([0.9, -0.4, 0.7], dtype=torch.float64)


def diffusion(y: torch.Tensor) -> torch.Tensor:
    return A @ y


def convection(y: torch.Tensor) -> torch.Tensor:
    return -(y**3)


EXACT = {
    "diffusion": lambda y, h: torch.matrix_exp(h * A) @ y,
    "convection": lambda y, h: y / torch.sqrt(1 + 2 * h * y**2),
}
EULER = {"diffusion": lambda y, h: y + h * diffusion(y), "convection": lambda y, h: y + h * convection(y)}


def exact(y: torch.Tensor, h: float) -> torch.Tensor:
    for _ in range(64):
        y = runge_kutta_step(lambda y: diffusion(y) + convection(y), y, get_tableau("rk4"), step_size=h / 64)
    return y


def local_slope(flows: dict, name: str) -> float:
    errors = [(split_step(flows, SPLITTINGS[name], Y0, h) - exact(Y0, h)).norm().item() for h in (0.02, 0.01)]
    return math.log2(errors[0] / errors[1])


@pytest.mark.parametrize("name", SPLITTINGS)
def test_with_exact_flows_the_local_error_has_the_order_of_the_theorem(name: str) -> None:
    """Macaron Net, Theorem 1: O(h²) for Lie–Trotter, O(h³) for Strang–Marchuk."""
    assert local_slope(EXACT, name) == pytest.approx(SPLITTINGS[name].order + 1, abs=0.05)


@pytest.mark.parametrize("name", SPLITTINGS)
def test_with_euler_flows_both_fall_to_second_order(name: str) -> None:
    """What a Macaron layer does: the order that Strang–Marchuk gains, Euler's method loses again."""
    assert local_slope(EULER, name) == pytest.approx(2, abs=0.05)


def test_the_leading_term_of_lie_trotter() -> None:
    """γ²/2 (F'G − G'F), up to the sign, where F acts first."""
    h = 1e-3
    error = (split_step(EXACT, SPLITTINGS["lie-trotter"], Y0, h) - exact(Y0, h)) / (h**2 / 2)
    slope = torch.diag(-3 * Y0**2)
    torch.testing.assert_close(error, slope @ diffusion(Y0) - A @ convection(Y0), rtol=0, atol=5e-3)
