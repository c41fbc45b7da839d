import pytest
import torch
from torch import nn

from ode_transformer.nn import LayerHistory
from ode_transformer.numerics import COEFFICIENTS, RungeKutta, get_tableau, runge_kutta_step

DIM, LAYERS = 6, 3
FIELDS = [torch.tanh, torch.sin, lambda y: 0.5 * y.flip(-1)]


def history(learned: bool, scheme: str = "euler") -> LayerHistory:
    tableau = get_tableau(scheme)
    inner = RungeKutta(tableau, [COEFFICIENTS["tableau"](tableau, DIM)])
    made = LayerHistory(inner, LAYERS, DIM, learned).double()
    for norm in made.norms:
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    return made


@pytest.mark.parametrize("scheme", ["euler", "rk2", "rk4"])
@pytest.mark.parametrize("learned", [False, True])
def test_equals_the_equation(learned: bool, scheme: str) -> None:
    made = history(learned, scheme)
    if learned:
        nn.init.normal_(made.weight)
    weight = [made.weights(depth) for depth in range(LAYERS + 1)]
    y0 = torch.randn(2, 4, DIM, dtype=torch.float64)
    seen = [y0]
    for n, field in enumerate(FIELDS):
        x = sum(weight[n][i] * s for i, s in enumerate(seen))
        seen.append(made.norms[n](runge_kutta_step(field, x, get_tableau(scheme))))
    expected = sum(weight[LAYERS][i] * s for i, s in enumerate(seen))
    torch.testing.assert_close(made.integrate(FIELDS, y0), expected)


def test_starts_as_the_mean_and_dense_keeps_it() -> None:
    for learned in (True, False):
        for depth in range(LAYERS + 1):
            assert [float(w) for w in history(learned).weights(depth)] == pytest.approx([1 / (depth + 1)] * (depth + 1))
    assert "weight" not in history(False).state_dict()


def test_parameter_counts() -> None:
    norms = 2 * DIM * LAYERS
    assert sum(p.numel() for p in history(True).parameters()) == (LAYERS + 1) ** 2 + norms
    assert sum(p.numel() for p in history(False).parameters()) == norms


def test_only_the_lower_triangle_is_trained() -> None:
    made = history(True)
    made.integrate(FIELDS, torch.randn(2, 4, DIM, dtype=torch.float64)).square().sum().backward()
    assert torch.equal(made.weight.grad != 0, torch.ones(LAYERS + 1, LAYERS + 1).tril().bool())


def test_half_precision_of_a_deep_stack_does_not_overflow() -> None:
    made = history(True).half()
    y0 = torch.full((1, 2, DIM), 40000.0, dtype=torch.float16)
    with torch.no_grad():
        assert made.integrate([torch.zeros_like] * LAYERS, y0).isfinite().all()
