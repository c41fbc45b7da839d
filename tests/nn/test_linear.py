"""The linear map by oneDNN against PyTorch's own."""

from unittest.mock import Mock

import pytest
import torch
from torch.nn.functional import linear

from ode_transformer.nn import Linear
from ode_transformer.nn import linear as module
from ode_transformer.nn.linear import linear_map


# A map that narrows, and two that widen: for the gradient of the weight, one copies dy, the other x.
@pytest.mark.parametrize(("input_dim", "dim", "bias"), [(96, 64, True), (96, 160, True), (16, 160, False)])
def test_values_and_gradients_of_both_libraries(input_dim: int, dim: int, bias: bool, monkeypatch) -> None:
    torch.manual_seed(1)
    layer = Linear(input_dim, dim, bias=bias)
    x = torch.randn(3, 40, input_dim, requires_grad=True)
    inputs = (x, *layer.parameters())
    direction = torch.randn(3, 40, dim)

    def results() -> list[torch.Tensor]:
        """Result, gradients, and the gradients of the squared gradients."""
        y = layer(x).relu()
        gradients = torch.autograd.grad((y.square() * direction).sum(), inputs, create_graph=True)
        second = torch.autograd.grad(sum(gradient.square().sum() for gradient in gradients), inputs)
        return [y, *gradients, *second]

    by_onednn = Mock(side_effect=torch.ops.mkldnn._linear_pointwise)
    monkeypatch.setattr(module, "ONEDNN_LINEAR", by_onednn)
    got = results()
    calls = by_onednn.call_count
    assert calls > 3
    with torch.backends.mkldnn.flags(enabled=False):
        expected = results()
    assert by_onednn.call_count == calls
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4 * b.abs().max().item())
    with torch.no_grad():
        torch.testing.assert_close(layer(x), linear(x, layer.weight, layer.bias), rtol=1e-4, atol=1e-5)
    assert by_onednn.call_count == calls + 1


@pytest.mark.parametrize("by_onednn", [True, False])
def test_the_result_may_be_changed_in_place(by_onednn: bool, monkeypatch) -> None:
    monkeypatch.setattr(module, "ONEDNN_LINEAR", torch.ops.mkldnn._linear_pointwise if by_onednn else None)
    layer = Linear(3, 4)
    for shape in [(3,), (2, 3), (2, 5, 3)]:
        logits = layer(torch.randn(shape))
        logits[..., 1] = -torch.inf
        (gradient,) = torch.autograd.grad(logits[..., [0, 2, 3]].sum(), layer.bias)
        rows = logits[..., 0].numel()
        assert gradient.tolist() == [rows, 0, rows, rows]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types_and_a_changed_precision_are_left_to_pytorch(dtype: torch.dtype, monkeypatch) -> None:
    monkeypatch.setattr(module, "ONEDNN_LINEAR", Mock(side_effect=AssertionError))
    x, weight = torch.randn(8, 16, dtype=dtype), torch.randn(4, 16, dtype=dtype)
    assert torch.equal(linear_map(x, weight), linear(x, weight))
    with torch.autocast("cpu", torch.bfloat16):
        assert linear_map(x, weight).dtype == linear(x, weight).dtype
