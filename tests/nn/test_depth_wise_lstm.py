"""The depth-wise LSTM against its equations."""

import pytest
import torch
from cover_for_tests import pairwise
from torch import nn
from torch.nn.functional import gelu

from ode_transformer.nn import DepthChoice, HiddenSizes, LSTMChoice, SubLayerKind, build_scheme

DIM, INNER, LAYERS = 4, 6, 3
SIZES = HiddenSizes(INNER, torch.nn.functional.gelu)
AXES = {name: option.samples() for name, option in LSTMChoice.options().items() if name != "forget_bias"}
CHOICES = [LSTMChoice(**parts) for parts in pairwise(AXES, lambda parts: True)]
ENCODER = {"self_attn": SubLayerKind.SELF_ATTENTION, "ffn": SubLayerKind.FEED_FORWARD}
STACKS = {"encoder": ENCODER, "decoder": {"encoder_attn": SubLayerKind.CROSS_ATTENTION} | ENCODER}


def perturbed(module: nn.Module) -> nn.Module:
    for parameter in module.double().parameters():
        nn.init.normal_(parameter, std=0.6)
    return module


def make(choice: LSTMChoice, stack: str, **sizes) -> tuple[nn.Module, list[list[nn.Linear]]]:
    """A scheme, and linear maps in the place of the attentions of each layer."""
    torch.manual_seed(0)
    depth = DepthChoice("dlstm", lstm=choice, normalize_before=False, accepts_idle=True)
    scheme = build_scheme(depth, LAYERS, STACKS[stack], DIM, HiddenSizes(**sizes) if sizes else SIZES)
    attentions = [[perturbed(nn.Linear(DIM, DIM)) for _ in range(len(STACKS[stack]) - 1)] for _ in range(LAYERS)]
    return perturbed(scheme), attentions


def through(scheme, attentions, y0):
    y, state = y0, scheme.start(y0)
    for number, layer in enumerate(attentions):
        y, state = scheme(lambda z, attention, layer=layer: layer[attention](z), y, state, number)
    return y


def normalised(x, weight, bias):  # Eq. 7
    mean = x.mean(-1, keepdim=True)
    return (x - mean) / ((x - mean).square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight + bias


def by_the_equations(choice, scheme, attentions, y0):
    output, cell = y0, torch.zeros_like(y0)
    if choice.first_cell == "learned":
        cell = scheme.first_cell.expand_as(y0)
    elif choice.first_cell == "embedding":
        cell = y0
    for depth, layer in enumerate(attentions):
        attended = [layer[0](output)]
        if len(layer) == 2:
            attended.append(layer[1](attended[0] + output))
        if len(layer) == 2 and choice.merge == "concat":
            x = scheme.merges[depth](torch.cat(attended, -1))
        elif choice.merge == "concat-unprojected":
            x = torch.cat(attended, -1)
        else:
            x = sum(attended) + output * (choice.merge == "residual")
        v = torch.cat([x, output], -1)  # Eq. 2
        gates = scheme.gates[depth if choice.share == "none" else 0]
        hidden = scheme.hidden[0 if choice.share == "all" else depth][0]
        norm = hidden.layer_norm.weight, hidden.layer_norm.bias
        projections, weights, biases = gates.projection(v).chunk(3, -1), gates.weight, gates.bias
        if choice.hidden == "ffn":  # Eq. 8
            h = hidden.fc2(gelu(normalised(hidden.fc1(v), *norm)))
        else:  # Eq. 6
            h = gelu(normalised(hidden.projection(v), *norm))
        i, f, g = map(normalised, projections, weights, biases)  # Eqs. 3-5
        cell = cell * f.sigmoid() + h * i.sigmoid()  # Eq. 9
        output = cell * g.sigmoid()  # Eq. 10
    return output


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("choice", CHOICES, ids=lambda c: "-".join(map(str, vars(c).values())))
def test_every_choice_is_the_equations(choice: LSTMChoice, stack: str) -> None:
    scheme, attentions = make(choice, stack)
    y0 = torch.randn(2, 3, DIM, dtype=torch.float64)
    torch.testing.assert_close(through(scheme, attentions, y0), by_the_equations(choice, scheme, attentions, y0))


@pytest.mark.parametrize("choice", [LSTMChoice(), LSTMChoice("linear", "concat", "none", "learned")])
def test_gradients(choice: LSTMChoice) -> None:
    scheme, attentions = make(choice, "decoder")
    y0 = torch.randn(2, DIM, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda y: through(scheme, attentions, y), (y0,))
    through(scheme, attentions, y0).sum().backward()
    assert all(parameter.grad is not None for parameter in scheme.parameters())


def test_gates_start_half_open_but_for_the_forget_gate_on_request() -> None:
    """The mean over many inputs, whose normalised projections lie about 0 on both sides."""
    for forget_bias, opened in ((0.0, 0.5), (2.0, 0.86)):
        torch.manual_seed(0)
        choice = DepthChoice("dlstm", lstm=LSTMChoice(forget_bias=forget_bias))
        scheme = build_scheme(choice, 1, {"self_attn": SubLayerKind.SELF_ATTENTION}, 64)
        means = [gate.mean().item() for gate in scheme.gates[0](torch.randn(500, 128))]
        assert means == pytest.approx([0.5, opened, 0.5], abs=0.02)


def test_dropout_acts_on_the_inner_layer_and_on_h() -> None:
    for options, of_h in (({"dropout": 0.5}, True), ({"inner_dropout": 0.5}, False)):
        scheme, _ = make(LSTMChoice(), "encoder", inner_dim=64, **options)
        hidden = scheme.train().hidden[0]
        zeros = (hidden(torch.randn(50, 2 * DIM, dtype=torch.float64)) == 0).double().mean()
        assert (0.4 < zeros < 0.6) if of_h else zeros == 0
        varying = [hidden(torch.ones(1, 2 * DIM, dtype=torch.float64)) for _ in range(2)]
        assert not torch.equal(*varying)
        assert torch.equal(*(scheme.eval().hidden[0](torch.ones(1, 2 * DIM, dtype=torch.float64)) for _ in range(2)))
