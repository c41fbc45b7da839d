"""What the stages of a step read and add: by definition, without padding, and by the command."""

from typing import Any

import pytest
import torch
from models_for_tests import PAD, batch, small_model
from torch import Tensor

from ode_transformer.lab.analysis.depth.stage_inputs import stage_inputs
from ode_transformer.models.layer_hooks import removed_afterwards, see_layer_inputs
from ode_transformer.nn import Layer

A = torch.randn(16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def means(y: Tensor, point: Tensor, increment: Tensor, first: Tensor) -> list[float]:
    cosines = (increment * first).sum(dim=1) / (increment.norm(dim=1) * first.norm(dim=1))
    ratios = [(point - y).norm(dim=1) / y.norm(dim=1), increment.norm(dim=1) / y.norm(dim=1), cosines]
    return [float(ratio.mean()) for ratio in ratios]


@pytest.mark.parametrize(("size", "steps"), [(1.0, 1), (0.5, 1), (1.0, 2)])
def test_by_definition(size: float, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stages of Heun's scheme over F(y) = A y, those of the first step, at the positions that are no padding."""
    choice: dict[str, Any] = {"decoder_layers": 1, "decoder_layer_history": "none"}
    model = small_model(
        arch="ode_transformer_lm_rk2", ode_coefficients="tableau", ode_step_size=size, ode_steps=steps, **choice
    )
    tokens = batch([6, 3, 4])
    first_inputs: list[Tensor] = []
    handles = see_layer_inputs(model.decoder, lambda _, inputs, __: first_inputs.append(inputs[0]))
    with removed_afterwards(handles), torch.no_grad():
        model(tokens)
    monkeypatch.setattr(Layer, "increment", lambda _, y, *__, **___: y @ A.T)
    y = first_inputs[0][tokens.ne(PAD)]
    first = size * y @ A.T
    second_point = y + first / steps
    found = stage_inputs(model, [{"net_input": {"src_tokens": tokens}}])
    assert [(stage.block, stage.stage) for stage in found] == [("decoder layer 1", 1), ("decoder layer 1", 2)]
    for stage, point in zip(found, (y, second_point), strict=True):
        expected = means(y, point, size * point @ A.T, first)
        assert [stage.moved, stage.increment, stage.cosine] == pytest.approx(expected, rel=1e-5)
