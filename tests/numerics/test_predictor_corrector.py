"""Predictor–corrector schemes: what their corrections converge to, and the names that they may have."""

import torch
from schemes_for_tests import integrate

from ode_transformer.numerics import RECURRENCES

EULER = RECURRENCES["implicit-euler"]


def field(y: torch.Tensor) -> torch.Tensor:
    return -0.4 * torch.sin(y)  # a contraction by 0.4


def test_corrections_converge_to_the_implicit_equation() -> None:
    """|y_1 − y_0 − F(y_1)| shrinks with each correction by the Lipschitz constant of F."""
    y0 = torch.linspace(0.5, 1.5, 5, dtype=torch.float64)
    residuals = []
    for iterations in (1, 2, 5, 40):
        y1 = integrate(EULER.build(1, 5, iterations=iterations), [field], y0)
        residuals.append((y1 - y0 - field(y1)).abs().max().item())
    assert residuals[1] < 0.4 * residuals[0] < 0.4**2
    assert residuals[2] < 0.4**3 * residuals[1]
    assert residuals[3] < 1e-15
