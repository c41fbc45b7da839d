"""Linear maps in int8 differ from those in float32 by their rounding alone."""

from typing import Any

import pytest
import torch
from batches import batch, perturb, teacher_forced
from models_for_tests import SMALL, build_model
from torch import nn

from ode_transformer.nn.int8 import Int8Linear, convert_to_int8


@pytest.mark.parametrize("bias", [True, False])
def test_each_row_and_each_input_has_its_own_rounding(bias: bool) -> None:
    torch.manual_seed(1)
    linear, x = nn.Linear(40, 30, bias=bias), torch.randn(2, 5, 40)
    with torch.no_grad():
        linear.weight.mul_(torch.logspace(-4, 2, 30)[:, None])
        linear.weight[7] = 0
    half_steps = linear.weight.abs().amax(1) / 254, (x.max() - x.min()) / 254  # 8 bits of the weights, 7 of the input
    expected, y = linear(x), Int8Linear(linear.weight, linear.bias)(x)
    bound = half_steps[0] * x.abs().sum(-1, keepdim=True) + 1.1 * half_steps[1] * linear.weight.abs().sum(1)
    assert ((y - expected).abs() <= bound + 1e-5).all()
    assert (y[..., 7] == (linear.bias[7] if bias else 0)).all()


@pytest.mark.parametrize(
    "options",
    [
        {"arch": "ode_transformer_rk2"},
        {"arch": "macaron", "relative_values": True},
        {"arch": "dlstm"},
        {"arch": "reformer_fast", "encoder_layers": 1},
    ],
)
@torch.no_grad()
def test_every_architecture_keeps_its_logits(options: dict[str, Any]) -> None:
    torch.manual_seed(1)
    model = perturb(build_model(**(SMALL | options)))
    source, target = batch([6, 9]), teacher_forced(batch([5, 7], seed=1))
    expected, _ = model(source, source.ne(1).sum(1), target)
    assert convert_to_int8(model) > 10
    names = {name.rpartition(".")[2] for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    assert names <= {"projection"}  # of the gate and of Reformer's reduction, both narrow
    logits, _ = model(source, source.ne(1).sum(1), target)
    assert 0 < (logits - expected).abs().max() < 0.2 * expected.std()
