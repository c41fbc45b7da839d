"""``--compile`` changes no number and no name of a parameter, and needs a compiler."""

import pytest
import torch
from models_for_tests import small_model

from ode_transformer.models import compilation
from ode_transformer.nn import SubLayer
from ode_transformer.support.errors import OptionError

RK2 = {"encoder_ode_scheme": "rk2", "encoder_layers": 1, "decoder_layers": 1}


@pytest.mark.slow
def test_a_compiled_model_is_the_same_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "_BACKEND", "eager")  # traces as any, and calls no compiler
    monkeypatch.setattr(compilation, "_has_compiler", lambda: True)
    plain, compiled = small_model(**RK2), small_model(**RK2, compile=True)
    sublayers = [module for module in compiled.modules() if isinstance(module, SubLayer)]
    assert len(sublayers) == 5
    assert all(sublayer._compiled_call_impl is not None for sublayer in sublayers)
    assert list(plain.state_dict()) == list(compiled.state_dict())
    x = torch.randn(2, 3, 16, dtype=torch.float64)
    values = [model.encoder.layers[0]["ffn"](x) for model in (plain, compiled)]
    torch.testing.assert_close(*values)


@pytest.mark.slow
@pytest.mark.parametrize("recomputed", [False, True])
def test_padding_and_recomputed_layers_give_the_same_gradients(
    recomputed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compilation, "_BACKEND", "aot_eager")  # builds the graphs of both passes, and calls no compiler
    monkeypatch.setattr(compilation, "_has_compiler", lambda: True)
    more = {"checkpoint_activations": recomputed, "dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
    models = small_model(**RK2, **more), small_model(**RK2, **more, compile=True)
    source = torch.tensor([[4, 5, 6, 7, 2], [1, 1, 5, 4, 2]])
    target = torch.tensor([[2, 4, 5, 6], [2, 5, 4, 1]])
    losses = []
    for model in models:
        model.train()
        logits, _ = model(source, torch.tensor([5, 3]), target)
        losses.append(logits.log_softmax(-1).square().mean())
        losses[-1].backward()
    torch.testing.assert_close(*losses)
    for plain, compiled in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(plain.grad, compiled.grad)


def test_a_missing_compiler_ends_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation.shutil, "which", lambda name: None)
    with pytest.raises(OptionError, match=r"^--compile: .* C\+\+ compiler .* omit the flag$"):
        small_model(**RK2, compile=True)
    assert small_model(**RK2, compile=True, ode_options_saved=True)  # a checkpoint decodes where no compiler is
