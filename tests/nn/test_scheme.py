"""The scheme of a stack: every combination of options is built and stepped, or refused with its reason."""

from typing import Any

import pytest
import torch
from cover_for_tests import pairwise
from torch import nn

from ode_transformer.nn import (
    DepthChoice,
    FeedForwardSubLayer,
    Layer,
    LayerHistory,
    LayerPlan,
    SubLayer,
    SubLayerKind,
    build_scheme,
    plan_layers,
)
from ode_transformer.numerics import COEFFICIENTS, GATES, RECURRENCES, TABLEAUS, get_tableau

DIM = 4
EXACT = {"rtol": 1e-13, "atol": 1e-13}  # double precision, and no constant of less
KINDS = {"self_attn": SubLayerKind.SELF_ATTENTION, "ffn": SubLayerKind.FEED_FORWARD}


def field(y: torch.Tensor) -> torch.Tensor:
    return 0.5 * torch.tanh(y)


def goes_together(parts: dict[str, Any]) -> bool:
    try:
        DepthChoice(**parts)
    except ValueError:
        return False
    return True


def test_exactly_these_coefficients_are_refused() -> None:
    pairs = {(tableau.name, name) for tableau in TABLEAUS for name in COEFFICIENTS if name != "tableau"}
    refused = {pair for pair in pairs if not goes_together({"scheme": pair[0], "coefficients": pair[1]})}
    tableaus, lengths = {tableau.name: tableau for tableau in TABLEAUS}, ("scalar", "vector")
    one_stage = {(t, name) for t, name in pairs if tableaus[t].stages == 1 and name not in lengths}
    repeats = {(t, name) for t, name in pairs if tableaus[t].order == 0}
    zero_weight = {(t, name) for t, name in pairs if 0 in tableaus[t].b and name in (*GATES, "sigmoid", "tanh")}
    assert refused == one_stage | repeats | zero_weight
    assert {("euler", "gate"), ("euler", "ones"), ("midpoint", "gate"), ("repeat", "ones")} <= refused


# Options of the layers themselves, which test_properties combines, or with a test of their own below.
ELSEWHERE = {"layerdrop", "middle_layers", "splitting", "value_residual"}
AXES = {
    name: option.samples()
    for name, option in DepthChoice.options().items()
    if not option.group and name not in ELSEWHERE
} | {"scheme": [*(t.name for t in TABLEAUS), *(name for name, entry in RECURRENCES.items() if entry.predictor is None)]}
COVER = [DepthChoice(**parts) for parts in pairwise(AXES, goes_together)]


def build_layers(choice: DepthChoice, count: int = 2) -> list[Layer]:
    return [build_layer(choice, plan) for plan in plan_layers(choice, KINDS, count)]


def build_layer(choice: DepthChoice, plan: LayerPlan) -> Layer:
    norms = {"normalize_before": choice.normalize_before, "normalized": choice.normalizes_sublayers}

    def sublayer() -> SubLayer:
        return FeedForwardSubLayer(nn.Linear(DIM, DIM), DIM, **norms)

    copies = range(choice.copies)
    return Layer({name: nn.ModuleList(sublayer() for _ in copies) for name in KINDS}, plan).double()


@pytest.mark.parametrize("choice", COVER, ids=lambda c: "-".join(map(str, vars(c).values())))
def test_a_layer_moves_by_every_pair_of_parts(choice: DepthChoice) -> None:
    """Two layers, stepped as the choice says, against the definition written out for one layer after another."""
    layers = build_layers(choice)
    scheme = build_scheme(choice, 2, KINDS, DIM).double()
    for parameter in scheme.parameters():
        nn.init.normal_(parameter, std=0.3)
    y0 = torch.randn(3, DIM, dtype=torch.float64)
    torch.testing.assert_close(through(choice, layers, scheme, y0), by_definition(choice, layers, scheme, y0), **EXACT)


def through(choice: DepthChoice, layers: list[Layer], scheme: nn.Module, y: torch.Tensor) -> torch.Tensor:
    history = scheme if isinstance(scheme, LayerHistory) else None
    inner, states = scheme if history is None else history.scheme, []
    state = inner.start(y)
    if history is not None:
        y, states = history(y)
    for layer in layers:
        y, state = layer(y, state, None, inner)
        if history is not None:
            y, states = history(y, states)
    return y


def by_definition(choice: DepthChoice, layers: list[Layer], scheme: nn.Module, y0: torch.Tensor) -> torch.Tensor:
    """The equations with loops, nothing shared with the package but weights and the tableau's numbers."""
    tableau = next((t for t in TABLEAUS if t.name == choice.scheme), None)
    inner = scheme if choice.history == "none" else scheme.scheme
    stages, h = 1 if tableau is None else len(tableau.b), choice.step_size / choice.steps
    block_number = 0
    read: list[torch.Tensor] = []  # by each block
    added: list[torch.Tensor] = []  # by each block

    def sub(each: SubLayer, x: torch.Tensor) -> torch.Tensor:  # the sub-layer with its residual
        if choice.normalize_before:
            return x + each.function(each.layer_norm(x))
        return each.layer_norm(x + each.function(x))

    def whole(members: list[nn.ModuleList], stage: int, x: torch.Tensor) -> torch.Tensor:
        for member in members:
            x = sub(member[stage % len(member)], x)
        return x

    def stepped(members: list[nn.ModuleList], y: torch.Tensor) -> torch.Tensor:
        nonlocal block_number
        if tableau is None:
            return recurred(members, y)
        weigh = inner.coefficients[min(block_number, len(inner.coefficients) - 1)]
        block_number += 1
        for _ in range(choice.steps):
            k: list[torch.Tensor] = []
            for i in range(stages):
                x = y + h * sum((tableau.a[i][j] * k[j] for j in range(i)), torch.zeros_like(y))
                k.append(whole(members, i, x) - (x if choice.function == "increment" else 0))
            if choice.coefficients == "tableau":
                gamma = tableau.b
            elif choice.coefficients == "ones":
                gamma = (1.0,) * stages
            elif choice.coefficients in ("scalar", "vector"):
                gamma = weigh.weight
            elif choice.coefficients.startswith("ema"):
                gamma = [weigh.alpha * (1 - weigh.alpha) ** (stages - 1 - i) for i in range(stages)]
            else:
                reads = k
                if choice.coefficients == "normalised-gate":
                    centred = [f - f.mean(-1, keepdim=True) for f in k]
                    reads = [f / (f.square().mean(-1, keepdim=True) + 1e-5).sqrt() for f in centred]
                logits = weigh.projection(torch.cat(reads, dim=-1))
                if choice.coefficients in GATES:
                    exp = torch.cat([logits, torch.zeros_like(logits[..., :1])], dim=-1).exp()
                    total = stages if choice.gate_sum == "stages" else 1
                    gamma = (total * exp / exp.sum(-1, keepdim=True)).split(1, dim=-1)
                else:
                    gamma = getattr(torch, choice.coefficients)(logits).split(1, dim=-1)
            added_here = h * sum(g * f for g, f in zip(gamma, k, strict=True))
            y = y + (inner.norms[block_number - 1](added_here) if choice.normalize_step else added_here)
        return y

    def recurred(members: list[nn.ModuleList], y: torch.Tensor) -> torch.Tensor:
        def increment(x: torch.Tensor, stage: int = 0) -> torch.Tensor:
            return whole(members, stage, x) - x

        t = len(read)
        before = read[-1] if read else y
        read.append(y)
        if choice.scheme == "multistep-released":  # f and LN, not f after LN; the first is a plain residual sub-layer
            (member,) = members
            u = inner.norms[t](y if t == 0 else (1 - inner.k[t - 1]) * y)
            return y + member[0].function(u) if t == 0 else inner.k[t - 1] * before + u + member[0].function(u)
        if choice.scheme in ("nesterov", "heavy-ball"):
            mu, beta = (0 if raw is None or t == 0 else raw[t].sigmoid() for raw in (inner.raw_mu, inner.raw_beta))
            v = added[-1] if added else torch.zeros_like(y)
            added.append(inner.norms[t](beta * v + (1 + inner.raw_gamma[t].exp()).log() * increment(y + mu * v)))
            return y + added[t]
        added.append(increment(y))
        if choice.scheme in ("polynet", "polynet-released"):
            return y + added[t] + increment(added[t], 1)
        if choice.scheme == "leapfrog":
            return y + added[t] if t == 0 else before + 2 * added[t]
        if choice.scheme == "multistep":
            return inner.k[t] * y + (1 - inner.k[t]) * before + added[t]
        assert choice.scheme == "dlcl-increments"
        return y0 + sum(inner.weight[t, n] * f for n, f in enumerate(added))

    history, x = [y0], y0 * (scheme.weight[0, 0] if choice.history == "dlcl" else 1)
    for n, each in enumerate(layers):
        sublayers = [each[name] for name in KINDS]
        if choice.function == "layer-output" and stages == 1:
            x = whole(sublayers, 0, x)
        elif choice.scope == "san+ffn" and choice.scheme not in ("multistep-released", "polynet-released"):
            x = stepped(sublayers, x)
        else:
            for name, sublayer in zip(KINDS, sublayers, strict=True):
                alone = choice.scope in ("san/ffn", "san+ffn", {"self_attn": "san", "ffn": "ffn"}[name])
                x = stepped([sublayer], x) if alone else whole([sublayer], 0, x)
        if choice.history != "none":
            norm = scheme.norms[n]
            history.append(norm(x) if choice.normalize_before else x)
            weight = scheme.weight[n + 1] if choice.history == "dlcl" else [1 / (n + 2)] * (n + 2)
            x = sum(w * s for w, s in zip(weight, history, strict=False))
            x = x if choice.normalize_before else norm(x)
    return x


@pytest.mark.parametrize("scheme", ["pcformer2", "pcformer4"])
def test_a_layer_predicted_and_corrected_with_averaged_weights(scheme: str) -> None:
    """Li et al. 2024 with all their options, each layer two sub-layers with parameters of their own for each stage."""
    choice = DepthChoice(scheme, "ema-vector", share_coefficients=True, stage_parameters="separate")
    layers = build_layers(choice)
    made = build_scheme(choice, 2, KINDS, DIM).double()
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.3)

    def u(n: int, evaluation: int, x: torch.Tensor) -> torch.Tensor:
        for name in KINDS:
            part = layers[n][name][evaluation]
            x = x + part.function(part.layer_norm(x))
        return x

    inputs, alpha = get_tableau("rk2" if scheme == "pcformer2" else "rk4").a, made.coefficients[0].alpha
    o, y0 = len(inputs), torch.randn(3, DIM, dtype=torch.float64)
    x, s = y0, [y0]
    for n in range(2):
        outputs, p = [], 0
        for j in range(o):
            z = x + sum(a * each for a, each in zip(inputs[j], outputs, strict=True))
            outputs.append(u(n, j, z))
            p = (1 - alpha) * p + alpha * outputs[j]
        s.append(made.predicted_norms[n](x + p))
        c = sum(made.weight[n + 1, m] * s[m] for m in range(n + 2))
        s[-1] = made.corrected_norms[n](u(n, o, c))
        x = sum(made.output_weight[n + 1, m] * s[m] for m in range(n + 2))
    torch.testing.assert_close(through(choice, layers, made, y0), x, **EXACT)


@pytest.mark.parametrize(
    ("layers", "middle", "stepped"), [(6, 2, [2, 3]), (5, 2, [1, 2]), (3, 3, [0, 1, 2]), (4, 0, [0, 1, 2, 3])]
)
def test_middle_layers(layers: int, middle: int, stepped: list[int]) -> None:
    choice = DepthChoice("rk2", "gate", middle_layers=middle, accepts_idle=True)
    assert list(choice.stepped_layers(layers)) == stepped
    assert len(build_scheme(choice, layers, KINDS, DIM).coefficients) == len(stepped)
