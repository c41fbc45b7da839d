"""``ode-transformer analyse splitting-error``: measured error of one step of a splitting (Macaron Net, Theorem 1).

The problem is y' = A y + G(y) with G(y) = −y³ for each entry. A mixes the entries and G does not, as attention mixes
positions and a feed-forward network does not; they do not commute, and both have flows in closed form.
"""

import argparse
import math
from collections.abc import Mapping
from pathlib import Path

import torch

from ode_transformer.lab.analysis.plots import check_outputs, saved_panel
from ode_transformer.numerics import SPLITTINGS, Flow, solve_to_tolerance, split_step

A = torch.tensor([[-0.3, 1.0, 0.2], [-0.8, 0.1, 0.5], [0.4, -0.6, -0.2]], dtype=torch.float64)
Y0 = torch.tensor([0.9, -0.4, 0.7], dtype=torch.float64)
STEP_SIZES = tuple(2.0**-exponent for exponent in range(1, 9))


FLOWS: dict[str, Mapping[str, Flow]] = {
    "exact": {
        "diffusion": lambda y, h: torch.matrix_exp(h * A) @ y,
        "convection": lambda y, h: y / torch.sqrt(1 + 2 * h * y**2),
    },
    "Euler": {"diffusion": lambda y, h: y + h * (A @ y), "convection": lambda y, h: y - h * y**3},
}


def plot(errors: Mapping[str, list[float]], path: Path) -> None:
    """Plot the local error against the step size, for both splittings and both kinds of flow."""
    with saved_panel(path, 6, 4) as axes:
        for number, (name, values) in enumerate(errors.items()):
            style, label = "--x" if "Euler" in name else "-o", f"{name}: slope {slope(values):.2f}"
            axes.loglog(STEP_SIZES, values, style, color=f"C{number // len(FLOWS)}", label=label, base=2)
        axes.set(xlabel="step size γ", ylabel="local error of one step")
        axes.grid(alpha=0.3)
        axes.legend()


def slope(errors: list[float]) -> float:
    """Return the order of the local error in h, from the two smallest step sizes."""
    return math.log2(errors[-2] / errors[-1])


def run(args: argparse.Namespace) -> None:
    """Print the slopes, and plot the errors on request."""
    check_outputs(args.output)
    solutions = {h: solve_to_tolerance(lambda y: A @ y - y**3, Y0, tolerance=1e-13, duration=h).y for h in STEP_SIZES}
    errors = {
        f"{name}, {kind} flows": [(split_step(flows, splitting, Y0, h) - y).norm().item() for h, y in solutions.items()]
        for name, splitting in SPLITTINGS.items()
        for kind, flows in FLOWS.items()
    }
    if args.output is not None:
        plot(errors, args.output)
    for name, values in errors.items():
        print(f"{name}: local error of order {slope(values):.2f}, {values[-1]:.2e} at γ = {STEP_SIZES[-1]:g}")
