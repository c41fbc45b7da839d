"""Solve an equation of your own, y' = f(y), and measure the order of each scheme.

    python examples/own_equation.py

prints the error at t = 2 for growing numbers of steps, and the order that the last two errors show:

    scheme           4 steps   8 steps  16 steps  32 steps    order
    euler            5.9e-02   3.1e-02   1.6e-02   7.8e-03     0.99
    ...
    rk4              6.0e-05   4.2e-06   2.8e-07   1.8e-08     3.96
"""

from __future__ import annotations

import math

import torch

from ode_transformer.numerics import TABLEAUS, runge_kutta_steps

STEPS = (4, 8, 16, 32)
DURATION = 2.0


def f(y: torch.Tensor) -> torch.Tensor:
    """Logistic growth, y' = y (1 − y)."""
    return y * (1 - y)


def solution(y0: torch.Tensor, t: float) -> torch.Tensor:
    """Return the exact y(t)."""
    return 1 / (1 + (1 / y0 - 1) * math.exp(-t))


def main() -> None:
    y0 = torch.tensor([0.1, 0.3, 0.8], dtype=torch.float64)
    print(f"{'scheme':14}" + "".join(f"{steps:4} steps" for steps in STEPS) + "    order")
    for tableau in (tableau for tableau in TABLEAUS if tableau.order > 0):
        results = [runge_kutta_steps(f, y0, tableau, steps, duration=DURATION) for steps in STEPS]
        errors = [float((y - solution(y0, DURATION)).abs().max()) for y in results]
        order = math.log2(errors[-2] / errors[-1])
        print(f"{tableau.name:14}" + "".join(f"{error:10.1e}" for error in errors) + f"{order:9.2f}")


if __name__ == "__main__":
    main()
