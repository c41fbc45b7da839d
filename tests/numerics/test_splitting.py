"""Fields that act in turn, and how exact that is."""

import pytest
import torch

from ode_transformer.cli.command import main
from ode_transformer.lab.analysis.depth.splitting_error import FLOWS, Y0, A
from ode_transformer.numerics import SPLITTINGS, solve_to_tolerance, split_step


def test_the_leading_term_of_lie_trotter() -> None:
    """γ²/2 (F'G − G'F), up to the sign, where F acts first."""
    h = 1e-3
    solution = solve_to_tolerance(lambda y: A @ y - y**3, Y0, tolerance=1e-13, duration=h).y
    error = (split_step(FLOWS["exact"], SPLITTINGS["lie-trotter"], Y0, h) - solution) / (h**2 / 2)
    slope_of_convection = torch.diag(-3 * Y0**2)
    expected = slope_of_convection @ (A @ Y0) + A @ Y0**3
    torch.testing.assert_close(error, expected, rtol=0, atol=5e-3)


def test_the_command_prints_slopes_and_draws(tmp_path, capsys) -> None:
    assert main(["analyse", "splitting-error", "--output", str(tmp_path / "errors.png")]) == 0
    assert (tmp_path / "errors.png").read_bytes()[1:4] == b"PNG"
    lines = dict(line.split(": local error of order ") for line in capsys.readouterr().out.splitlines())
    orders = {name: float(order.split(",")[0]) for name, order in lines.items()}
    expected = {"lie-trotter, exact flows": 2, "lie-trotter, Euler flows": 2}
    expected |= {"strang, exact flows": 3, "strang, Euler flows": 2}
    assert orders == pytest.approx(expected, abs=0.05)
