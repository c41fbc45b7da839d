"""Value residual: the equation layer by layer, and whose values are added."""

import pytest
import torch
from torch import nn

from ode_transformer.nn import (
    AttentionMask,
    Context,
    DepthChoice,
    Layer,
    LayerPlan,
    MultiheadAttention,
    SelfAttention,
    SubLayerKind,
    Transformer,
    TransformerSizes,
    ValueResidual,
)

DIM, HEADS, KIND = 6, 2, SubLayerKind.SELF_ATTENTION


@pytest.mark.parametrize("learned", [False, True])
def test_values_of_later_layers_are_sums_with_those_of_the_first_evaluation(learned: bool) -> None:
    """Three layers of one attention, each evaluated twice: softmax(QKᵀ/√(C/H)) (λ_1 V_1 + λ_2 V_n), by hand."""
    attentions = [MultiheadAttention(DIM, HEADS).double() for _ in range(3)]
    residual = ValueResidual(3, learned).double()
    if learned:
        nn.init.normal_(residual.weight)
    weights = residual.weight if learned else torch.full((2, 2), 0.5, dtype=torch.float64)
    x = torch.randn(2, 4, DIM, dtype=torch.float64)
    context, expected, y = Context({KIND: AttentionMask()}, values=residual.start()), x, x
    for n, attention in enumerate(attentions):
        layer = Layer({"self_attn": SelfAttention(attention, DIM, normalized=False).double()}, LayerPlan(n))
        for evaluation in range(2):
            y = y + layer.increment(y, evaluation, context, ["self_attn"])
            q, k, v = (x.view(2, 4, HEADS, -1).transpose(1, 2) for x in attention.in_proj(expected).chunk(3, -1))
            if n == evaluation == 0:
                first = v
            if n > 0:
                v = weights[n - 1, 0] * first + weights[n - 1, 1] * v
            out = (q @ k.transpose(-1, -2) / (DIM / HEADS) ** 0.5).softmax(-1) @ v
            expected = expected + attention.out_proj(out.transpose(1, 2).flatten(2))
    torch.testing.assert_close(y, expected)


def test_each_pass_has_first_values_of_its_own() -> None:
    """A second pass with the same context adds its own values, not those of the first pass."""
    sizes = TransformerSizes(vocabulary=9, dim=DIM, heads=HEADS, ffn=8, encoder_layers=3, decoder_layers=1)
    model = Transformer(sizes, encoder=DepthChoice(value_residual="mean")).double().eval()
    context, x = Context({KIND: AttentionMask()}), torch.randn(2, 1, 4, DIM, dtype=torch.float64)
    shared = [model.encoder.step_layers(y, context)[0] for y in x]
    assert torch.equal(shared[1], model.encoder.step_layers(x[1], Context({KIND: AttentionMask()}))[0])
