"""Gradient norms by layer: the right tensors, the right loss, and a command that says them."""

from typing import Any

import pytest
import torch
from batches import PAD, pair_sample
from models_for_tests import small_model
from torch import nn
from torch.utils._pytree import tree_map_only

from ode_transformer.lab.analysis.depth.gradient_norms import activation_norms, gradient_norms
from ode_transformer.lab.analysis.layer_replacement import negative_log_likelihood


@pytest.mark.parametrize(
    ("scheme", "options"),
    [
        *((scheme, {}) for scheme in ("leapfrog", "multistep", "pcformer2", "iiet", "rk4-moulton", "dlstm")),
        ("dlstm", {"dlstm_first_cell": "embedding"}),
    ],
)
def test_a_tensor_that_is_read_in_two_places_is_counted_once_for_each(scheme: str, options: dict) -> None:
    """Each norm is that of inputs that depend on nothing: where all below a layer is cut off."""
    one, layers = pair_sample([6, 3]), 5
    model = small_model(encoder_ode_scheme=scheme, encoder_layer_history="none", encoder_layers=layers, **options)
    norms = gradient_norms(model, [one])["encoder"]
    cut: list[torch.Tensor] = []

    def apart(x: torch.Tensor) -> torch.Tensor:
        if not x.requires_grad:  # a constant start
            return x
        cut.append(x.detach().requires_grad_())
        return cut[-1]

    def before(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        y, state, *others = inputs
        history = getattr(state, "history", None)
        state = state if history is None else state._replace(history=())
        y, state = tree_map_only(torch.Tensor, apart, (y, state))
        return (y, state if history is None else state._replace(history=history), *others)

    for number in range(layers):
        cut.clear()
        with model.encoder.layers[number].register_forward_pre_hook(before):
            loss = negative_log_likelihood(model, one)
        expected = sum(float(g.square().sum()) for g in torch.autograd.grad(loss, cut)) ** 0.5
        assert norms[number] == pytest.approx(expected), number


def test_batches_are_averaged_and_padding_has_no_part() -> None:
    model, first, second = small_model(), pair_sample([6, 3]), pair_sample([4, 4], seed=7)
    apart = [gradient_norms(model, [one]) for one in (first, second)]
    together = gradient_norms(model, [first, second])
    for stack, norms in together.items():
        assert norms == pytest.approx([(a + b) / 2 for a, b in zip(apart[0][stack], apart[1][stack], strict=True)])
    wider = {key: nn.functional.pad(t, (0, 3), value=PAD) for key, t in second["net_input"].items()}
    target = nn.functional.pad(second["target"], (0, 3), value=PAD)
    padded = {"net_input": wider | {"src_lengths": None}, "target": target}
    for stack, norms in gradient_norms(model, [padded]).items():
        assert norms == pytest.approx(apart[1][stack])
    kept = first["target"].ne(PAD)
    likelihoods = model(**first["net_input"])[0].log_softmax(-1)[kept].gather(1, first["target"][kept][:, None])
    assert float(negative_log_likelihood(model, first)) == pytest.approx(-float(likelihoods.mean()))
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_activation_norms_leave_padding_out() -> None:
    model = small_model(encoder_layer_history="none", decoder_layer_history="none")
    apart = [activation_norms(model, [pair_sample([length])])["decoder"][0] for length in (5, 3)]
    together = activation_norms(model, [pair_sample([5]), pair_sample([3])])["decoder"][0]
    assert together == pytest.approx((5 * apart[0] + 3 * apart[1]) / 8)
    source = pair_sample([4])["net_input"]
    output = model.encoder.forward(source["src_tokens"], None, return_all_hiddens=True)["encoder_states"][-1]
    (_, last) = activation_norms(model, [pair_sample([4])])["encoder"]
    assert last == pytest.approx(float(output.norm(dim=-1).mean()), rel=1e-6)
