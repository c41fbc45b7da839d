"""``--compile`` changes no number and no name of a parameter."""

import pytest
import torch
from models_for_tests import small_model

from ode_transformer.models import depth_stack
from ode_transformer.nn import SubLayer

RK2 = {"encoder_ode_scheme": "rk2", "encoder_layers": 1, "decoder_layers": 1}


@pytest.mark.slow
@pytest.mark.parametrize("recomputed", [True])
def test_padding_and_recomputed_layers_give_the_same_gradients(
    recomputed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(depth_stack, "COMPILER", "aot_eager")  # builds the graphs of both passes, and calls no compiler
    more = {"checkpoint_activations": recomputed, "dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
    models = small_model(**RK2, **more), small_model(**RK2, **more, compile=True)
    source = torch.tensor([[4, 5, 6, 7, 2], [1, 1, 5, 4, 2]])
    target = torch.tensor([[2, 4, 5, 6], [2, 5, 4, 1]])
    sublayers = [module for module in models[1].modules() if isinstance(module, SubLayer)]
    assert len(sublayers) == 5
    assert all(sublayer._compiled_call_impl is not None for sublayer in sublayers)
    assert list(models[0].state_dict()) == list(models[1].state_dict())
    saved = small_model(**RK2, compile=True, ode_options_saved=True)  # a checkpoint decodes without a compiler
    assert saved.encoder.layers[0]["ffn"]._compiled_call_impl is None
    losses = []
    for model in models:
        model.train()
        logits, _ = model(source, torch.tensor([5, 3]), target)
        losses.append(logits.log_softmax(-1).square().mean())
        losses[-1].backward()
    torch.testing.assert_close(*losses)
    for plain, compiled in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(plain.grad, compiled.grad)
