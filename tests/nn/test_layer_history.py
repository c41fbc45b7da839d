import pytest
import torch
from torch import nn

from ode_transformer.nn import LayerHistory
from ode_transformer.numerics import RungeKutta, get_tableau

DIM, LAYERS = 6, 3
FIELDS = [torch.tanh, torch.sin, lambda y: 0.5 * y.flip(-1)]


def history(learned: bool, scheme: str = "euler", normalize_before: bool = True) -> LayerHistory:
    made = LayerHistory(RungeKutta(get_tableau(scheme)), LAYERS, DIM, learned, normalize_before).double()
    for norm in made.norms:
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    return made


def through(made: LayerHistory, y: torch.Tensor) -> torch.Tensor:
    y, states = made(y)
    for number, field in enumerate(FIELDS):
        y, _ = made.scheme(lambda z, _, field=field: field(z), y, None, number)
        y, states = made(y, states)
    return y


@pytest.mark.parametrize("normalize_before", [False, True])
def test_gradients(normalize_before: bool) -> None:
    made = history(True, normalize_before=normalize_before)
    y0 = torch.randn(2, 2, DIM, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(LAYERS + 1, LAYERS + 1, dtype=torch.float64, requires_grad=True)

    def output(y0: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        del made.weight
        made.weight = weight
        return through(made, y0)

    del made.weight
    made.weight = weight
    assert torch.autograd.gradcheck(output, (y0, weight))


def test_starts_as_the_mean_and_dense_keeps_it() -> None:
    for learned in (True, False):
        for depth in range(LAYERS + 1):
            assert [float(w) for w in history(learned).weights(depth)] == pytest.approx([1 / (depth + 1)] * (depth + 1))
    assert "weight" not in history(False).state_dict()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_a_combination_is_the_sum_of_all_states(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    made = history(True).to(dtype)
    nn.init.normal_(made.weight)
    x, states = made(torch.randn(2, 5, DIM, dtype=dtype))
    for _ in range(LAYERS):
        x, states = made(torch.tanh(x), states)
    exact = sum(w.double() * s.double() for w, s in zip(made.weight[LAYERS], states.single, strict=True))
    torch.testing.assert_close(x.double(), exact, rtol=0, atol=8 * torch.finfo(dtype).eps)
