"""Fields that act in turn, and how exact that is."""

import pytest
import torch

from ode_transformer.analysis.depth.splitting_error import FLOWS, Y0, A, convection, diffusion, slope, solution
from ode_transformer.cli.command import main
from ode_transformer.numerics import SPLITTINGS, sequential_increment, split_step


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


@pytest.mark.parametrize("name", SPLITTINGS)
def test_with_exact_flows_the_local_error_has_the_order_of_the_theorem(name: str) -> None:
    """Macaron Net, Theorem 1: O(γ²) for Lie–Trotter, O(γ³) for Strang–Marchuk."""
    assert slope(SPLITTINGS[name], FLOWS["exact"]) == pytest.approx(SPLITTINGS[name].order + 1, abs=0.05)


@pytest.mark.parametrize("name", SPLITTINGS)
def test_with_euler_flows_both_are_of_second_order(name: str) -> None:
    """What a Macaron layer does: the order that Strang–Marchuk gains, Euler's method loses again."""
    assert slope(SPLITTINGS[name], FLOWS["Euler"]) == pytest.approx(2, abs=0.05)


def test_the_leading_term_of_lie_trotter() -> None:
    """γ²/2 (F'G − G'F), up to the sign, where F acts first."""
    h = 1e-3
    error = (split_step(FLOWS["exact"], SPLITTINGS["lie-trotter"], Y0, h) - solution(h)) / (h**2 / 2)
    slope_of_convection = torch.diag(-3 * Y0**2)
    expected = slope_of_convection @ diffusion(Y0) - A @ convection(Y0)
    torch.testing.assert_close(error, expected, rtol=0, atol=5e-3)


def test_the_flows_are_those_of_the_fields() -> None:
    """A step of an exact flow is many Euler steps."""
    for name, field in (("diffusion", diffusion), ("convection", convection)):
        y = Y0
        for _ in range(20_000):
            y = y + field(y) / 20_000
        torch.testing.assert_close(FLOWS["exact"][name](Y0, 1.0), y, rtol=0, atol=1e-4)


def test_the_command_prints_slopes_and_draws(tmp_path, capsys) -> None:
    assert main(["analyse", "splitting-error", "--output", str(tmp_path / "errors.png")]) == 0
    assert (tmp_path / "errors.png").read_bytes()[1:4] == b"PNG"
    lines = dict(line.split(": local error of order ") for line in capsys.readouterr().out.splitlines())
    orders = {name: float(order.split(",")[0]) for name, order in lines.items()}
    expected = {"lie-trotter, exact flows": 2, "lie-trotter, Euler flows": 2}
    expected |= {"strang, exact flows": 3, "strang, Euler flows": 2}
    assert orders == pytest.approx(expected, abs=0.05)
