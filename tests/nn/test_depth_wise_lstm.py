"""The depth-wise LSTM against its equations, written for one token and one layer at a time."""

import itertools
import math

import pytest
import torch
from torch import nn

from ode_transformer.nn import (
    FIRST_CELLS,
    HIDDEN,
    MERGES,
    SHARES,
    DepthChoice,
    HiddenSizes,
    LSTMChoice,
    SubLayerKind,
    build_scheme,
)
from ode_transformer.numerics import Block

DIM, INNER, LAYERS = 4, 6, 3
SIZES = HiddenSizes(INNER, torch.nn.functional.gelu)
CHOICES = [LSTMChoice(*parts) for parts in itertools.product(HIDDEN, MERGES[:2], SHARES, FIRST_CELLS)] + [
    LSTMChoice(hidden, merge, "gates", "embedding", normalization=normalization, output_norm=output_norm)
    for hidden, merge, (normalization, output_norm) in itertools.product(
        HIDDEN, MERGES, [("joint", False), ("joint", True), ("separate", True)]
    )
]
ENCODER = {"self_attn": SubLayerKind.SELF_ATTENTION, "ffn": SubLayerKind.FEED_FORWARD}
STACKS = {"encoder": ENCODER, "decoder": {"encoder_attn": SubLayerKind.CROSS_ATTENTION} | ENCODER}


def perturbed(module: nn.Module) -> nn.Module:
    for parameter in module.double().parameters():
        nn.init.normal_(parameter, std=0.6)
    return module


def make(choice: LSTMChoice, stack: str, **sizes) -> tuple[nn.Module, list[list[nn.Linear]]]:
    """A scheme, and linear maps in the place of the attentions of each layer."""
    torch.manual_seed(0)
    scheme = build_scheme(
        DepthChoice("dlstm", lstm=choice, normalize_before=False),
        LAYERS,
        STACKS[stack],
        DIM,
        HiddenSizes(**sizes) if sizes else SIZES,
    )
    attentions = [[perturbed(nn.Linear(DIM, DIM)) for _ in range(len(STACKS[stack]) - 1)] for _ in range(LAYERS)]
    return perturbed(scheme), attentions


def through(scheme, attentions, y0):
    depth_state = scheme.start(y0)
    for layer in attentions:
        depth_state = scheme.step([Block(attention) for attention in layer], depth_state)
    return scheme.finish(depth_state)


# -- the equations, on lists of numbers ---------------------------------------------------------------------------


def affine(weight, bias, x):
    return [sum(w * value for w, value in zip(row, x, strict=True)) + b for row, b in zip(weight, bias, strict=True)]


def normalised(x, weight, bias):  # Eq. 7
    mean = sum(x) / len(x)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in x) / len(x) + 1e-5)
    return [(value - mean) / deviation * w + b for value, w, b in zip(x, weight, bias, strict=True)]


def normalised_jointly(parts, weights, biases):  # the toolkit's: Eq. 7 over all parts together
    values = normalised([value for part in parts for value in part], [1] * len(parts) * DIM, [0] * len(parts) * DIM)
    scaled = zip(values, sum(weights, []), sum(biases, []), strict=True)
    return split([value * w + b for value, w, b in scaled])


def split(values):
    return [values[start : start + DIM] for start in range(0, len(values), DIM)]


def sigmoid(x):
    return [1 / (1 + math.exp(-value)) for value in x]


def gelu(x):
    return [value * 0.5 * (1 + math.erf(value / math.sqrt(2))) for value in x]


def numbers(module):
    return [parameter.tolist() for parameter in module.parameters()]


def by_the_equations(choice, scheme, attentions, token):
    output, cell = token, [0.0] * DIM
    if choice.first_cell == "learned":
        cell = scheme.first_cell.tolist()
    elif choice.first_cell == "embedding":
        cell = token
    for depth, layer in enumerate(attentions):
        found = [affine(*numbers(layer[0]), output)]
        if len(layer) == 2:
            found.append(affine(*numbers(layer[1]), [a + b for a, b in zip(found[0], output, strict=True)]))
        if len(layer) == 2 and choice.merge == "concat":
            x = affine(*numbers(scheme.merges[depth]), found[0] + found[1])
        elif choice.merge == "concat-unprojected":
            x = sum(found, [])
        else:
            x = [sum(values) for values in zip(*found, *[output] * (choice.merge == "residual"), strict=True)]
        v = x + output  # Eq. 2, a list after a list
        gates = scheme.gates[depth if choice.share == "none" else 0]
        hidden = scheme.hidden[0 if choice.share == "all" else depth][0]
        projections = split(affine(*numbers(gates.projection), v))
        weights, biases = gates.weight.tolist(), gates.bias.tolist()
        if choice.hidden == "ffn":  # Eq. 8
            inner = gelu(normalised(affine(*numbers(hidden.fc1), v), *numbers(hidden.layer_norm)))
            h = affine(*numbers(hidden.fc2), inner)
        else:  # Eq. 6
            projection, (weight, bias) = affine(*numbers(hidden.projection), v), numbers(hidden.layer_norm)
            h = gelu(normalised(projection, weight, bias))
        if choice.normalization == "separate":  # Eqs. 3-5
            i, f, g = map(sigmoid, map(normalised, projections, weights, biases))
        elif choice.hidden == "ffn":
            i, f, g = map(sigmoid, normalised_jointly(projections, weights, biases))
        else:
            *gate_values, h = normalised_jointly([*projections, projection], [*weights, weight], [*biases, bias])
            (i, f, g), h = map(sigmoid, gate_values), gelu(h)
        cell = [c * f_ + h_ * i_ for c, f_, h_, i_ in zip(cell, f, h, i, strict=True)]  # Eq. 9
        output = [c * g_ for c, g_ in zip(cell, g, strict=True)]  # Eq. 10
    return normalised(output, *numbers(scheme.output_norm)) if choice.output_norm else output


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("choice", CHOICES, ids=lambda c: "-".join(map(str, vars(c).values())))
def test_every_choice_is_the_equations(choice: LSTMChoice, stack: str) -> None:
    scheme, attentions = make(choice, stack)
    y0 = torch.randn(2, 3, DIM, dtype=torch.float64)
    expected = [[by_the_equations(choice, scheme, attentions, token) for token in row] for row in y0.tolist()]
    torch.testing.assert_close(through(scheme, attentions, y0), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("choice", [LSTMChoice(), LSTMChoice("linear", "concat", "none", "learned")])
def test_gradients(choice: LSTMChoice) -> None:
    scheme, attentions = make(choice, "decoder")
    y0 = torch.randn(2, DIM, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda y: through(scheme, attentions, y), (y0,))
    through(scheme, attentions, y0).sum().backward()
    assert all(parameter.grad is not None for parameter in scheme.parameters())


def test_a_layer_is_a_function_of_output_and_cell() -> None:
    """Its own values in its place change nothing, in the layers above neither."""
    choice = LSTMChoice(share="none")
    scheme, attentions = make(choice, "decoder")
    y0 = torch.randn(2, DIM, dtype=torch.float64)
    layers = [[Block(attention) for attention in layer] for layer in attentions]
    depth_state = scheme.step(layers[0], scheme.start(y0))
    output, cell = scheme.layer_inputs(depth_state)
    torch.testing.assert_close(output, depth_state.y)
    made = scheme.layer_outputs(scheme.step(layers[1], depth_state))
    replaced = scheme.skip_layer(made, layers[1], depth_state)
    torch.testing.assert_close(scheme.step(layers[2], replaced).y, through(scheme, attentions, y0))
    other = scheme.skip_layer((made[0], made[1] + 1), layers[1], depth_state)
    assert not torch.allclose(scheme.step(layers[2], other).y, through(scheme, attentions, y0))


def test_gates_start_half_open_but_for_the_forget_gate_on_request() -> None:
    """The mean over many inputs, whose normalised projections lie about 0 on both sides."""
    for forget_bias, opened in ((0.0, 0.5), (2.0, 0.86)):
        torch.manual_seed(0)
        scheme = build_scheme(
            DepthChoice("dlstm", lstm=LSTMChoice(forget_bias=forget_bias)),
            1,
            {"self_attn": SubLayerKind.SELF_ATTENTION},
            64,
        )
        i, f, g = (gate.mean().item() for gate in scheme.gates[0](torch.randn(500, 128)))
        assert (i, f, g) == (
            pytest.approx(0.5, abs=0.02),
            pytest.approx(opened, abs=0.02),
            pytest.approx(0.5, abs=0.02),
        )


def test_dropout_acts_on_the_inner_layer_and_on_h() -> None:
    for options, of_h in (({"dropout": 0.5}, True), ({"inner_dropout": 0.5}, False)):
        scheme, _ = make(LSTMChoice(), "encoder", inner_dim=64, **options)
        hidden = scheme.train().hidden[0]
        zeros = (hidden(torch.randn(50, 2 * DIM, dtype=torch.float64)) == 0).double().mean()
        assert (0.4 < zeros < 0.6) if of_h else zeros == 0
        varying = [hidden(torch.ones(1, 2 * DIM, dtype=torch.float64)) for _ in range(2)]
        assert not torch.equal(*varying)
        assert torch.equal(*(scheme.eval().hidden[0](torch.ones(1, 2 * DIM, dtype=torch.float64)) for _ in range(2)))
