"""All combinations of parts: built and stepped, or refused with the reason that the predicate gives."""

import itertools

import pytest
import torch
from cover_for_tests import pairwise
from torch import nn

from ode_transformer.nn import (
    FUNCTIONS,
    HISTORIES,
    SCOPES,
    STAGE_PARAMETERS,
    DepthChoice,
    Layer,
    LSTMChoice,
    SubLayer,
    SubLayerKind,
    build_scheme,
    refusal,
    refused_stack,
    swapped,
)
from ode_transformer.nn.depth_wise_lstm import LSTMState
from ode_transformer.numerics import COEFFICIENTS, RECURRENCES, TABLEAUS, Block

DIM = 4
KINDS = {"self_attn": SubLayerKind.SELF_ATTENTION, "ffn": SubLayerKind.FEED_FORWARD}
NUMERICS = [
    DepthChoice(tableau.name, coefficients, share, history=history, steps=steps)
    for tableau, coefficients, share, history, steps in itertools.product(
        TABLEAUS, COEFFICIENTS, (False, True), HISTORIES, (1, 2)
    )
]


def field(y: torch.Tensor) -> torch.Tensor:
    return 0.5 * torch.tanh(y)


@pytest.mark.parametrize("tableau", [t.name for t in TABLEAUS])
@pytest.mark.parametrize("coefficients", COEFFICIENTS)
def test_each_combination_of_numerics_works_or_is_refused(tableau: str, coefficients: str) -> None:
    for choice in NUMERICS:
        if (choice.scheme, choice.coefficients) != (tableau, coefficients):
            continue
        reason = refusal(choice)
        if reason is not None:
            assert "\n" not in reason
            with pytest.raises(ValueError) as raised:
                build_scheme(choice, 2, KINDS, DIM)
            assert str(raised.value) == reason
            continue
        scheme = build_scheme(choice, 2, KINDS, DIM)
        y0 = torch.randn(3, DIM, requires_grad=True)
        scheme.integrate([field, field], y0).square().sum().backward()
        assert y0.grad.isfinite().all()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in scheme.parameters())
        if choice.history == "none" and choice.coefficients != "scalar":
            torch.testing.assert_close(scheme.integrate([torch.zeros_like] * 2, y0), y0)


def test_exactly_these_combinations_of_numerics_are_refused() -> None:
    nothing_to_share = {c for c in NUMERICS if c.share_coefficients and c.coefficients in ("tableau", "ones")}
    assert all(refusal(c) for c in nothing_to_share)
    refused = {(c.scheme, c.coefficients) for c in NUMERICS if refusal(c) and c not in nothing_to_share}
    others = [name for name in COEFFICIENTS if name != "tableau"]
    one_stage = {(t.name, name) for t in TABLEAUS for name in others if t.stages == 1}
    repeats = {(t.name, name) for t in TABLEAUS for name in others if t.order == 0}
    zero_weight = {(t.name, name) for t in TABLEAUS for name in ("gate", "sigmoid", "tanh") if 0 in t.b}
    assert refused == one_stage | repeats | zero_weight
    assert {("euler", "gate"), ("euler", "scalar"), ("midpoint", "gate"), ("repeat", "ones")} <= refused


AXES = {
    "scheme": [*(t.name for t in TABLEAUS), *RECURRENCES],
    "coefficients": list(COEFFICIENTS),
    "share_coefficients": [False, True],
    "function": FUNCTIONS,
    "scope": SCOPES,
    "steps": [1, 3],
    "stage_parameters": STAGE_PARAMETERS,
    "history": HISTORIES,
    "normalize_before": [True, False],
}
COVER = [DepthChoice(**parts) for parts in pairwise(AXES, lambda parts: refusal(DepthChoice(**parts)) is None)]


def layer(choice: DepthChoice) -> Layer:
    def sublayer(kind: SubLayerKind) -> SubLayer:
        before = choice.normalize_before
        return SubLayer(kind, nn.Linear(DIM, DIM), DIM, normalize_before=before, normalized=choice.normalizes)

    copies = range(choice.copies)
    return Layer({name: nn.ModuleList(sublayer(kind) for _ in copies) for name, kind in KINDS.items()}).double()


@pytest.mark.parametrize("choice", COVER, ids=lambda c: "-".join(map(str, vars(c).values())))
def test_a_layer_moves_by_every_pair_of_parts(choice: DepthChoice) -> None:
    """Two layers, stepped as the choice says, against the definition written out for one layer after another."""
    layers = [layer(choice), layer(choice)]
    scheme = build_scheme(choice, 2, KINDS, DIM).double()
    for parameter in scheme.parameters():
        nn.init.normal_(parameter, std=0.3)
    y0 = torch.randn(3, DIM, dtype=torch.float64)
    grouping = choice.grouping(KINDS)
    depth_state = scheme.start(y0)
    for each in layers:
        depth_state = scheme.step(each.blocks(None, choice.function, grouping), depth_state)
    torch.testing.assert_close(scheme.finish(depth_state), by_definition(choice, layers, scheme, y0))


def by_definition(choice: DepthChoice, layers: list[Layer], scheme: nn.Module, y0: torch.Tensor) -> torch.Tensor:
    """The equations with loops, nothing shared with the package but weights and the tableau's numbers."""
    tableau = next((t for t in TABLEAUS if t.name == choice.scheme), None)
    inner = scheme if choice.history == "none" else scheme.scheme
    stages, h = 1 if tableau is None else len(tableau.b), 1 / choice.steps
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
            elif choice.coefficients == "scalar":
                gamma = weigh.weight
            else:
                logits = weigh.projection(torch.cat(k, dim=-1))
                if choice.coefficients == "gate":
                    exp = torch.cat([logits, torch.zeros_like(logits[..., :1])], dim=-1).exp()
                    gamma = (exp / exp.sum(-1, keepdim=True)).split(1, dim=-1)
                else:
                    gamma = getattr(torch, choice.coefficients)(logits).split(1, dim=-1)
            y = y + h * sum(g * f for g, f in zip(gamma, k, strict=True))
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
        added.append(increment(y))
        if choice.scheme in ("polynet", "polynet-released"):
            return y + added[t] + increment(added[t], 1)
        if choice.scheme == "leapfrog":
            return y + added[t] if t == 0 else before + 2 * added[t]
        if choice.scheme == "multistep":
            return inner.k[t] * y + (1 - inner.k[t]) * before + added[t]
        assert choice.scheme == "dlcl-increments"
        return y0 + sum(inner.weight[t, n] * f for n, f in enumerate(added))

    memory, x = [y0], y0 * (scheme.weight[0, 0] if choice.history == "dlcl" else 1)
    for n, each in enumerate(layers):
        sublayers = [each[name] for name in KINDS]
        if choice.function == "layer-output" and stages == 1:
            x = whole(sublayers, 0, x)
        elif choice.scope == "san+ffn" and choice.scheme not in ("multistep-released", "polynet-released"):
            x = stepped(sublayers, x)
        else:
            for name, sublayer in zip(KINDS, sublayers, strict=True):
                alone = (
                    choice.scope in ("san/ffn", "san+ffn") or name == {"san": "self_attn", "ffn": "ffn"}[choice.scope]
                )
                x = stepped([sublayer], x) if alone else whole([sublayer], 0, x)
        if choice.history != "none":
            norm = scheme.norms[n]
            memory.append(norm(x) if choice.normalize_before else x)
            weight = scheme.weight[n + 1] if choice.history == "dlcl" else [1 / (n + 2)] * (n + 2)
            x = sum(w * s for w, s in zip(weight, memory, strict=False))
            x = x if choice.normalize_before else norm(x)
    return x


@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        (DepthChoice(scheme="rk5"), "unknown scheme 'rk5'; known are euler"),
        (DepthChoice(splitting="half"), "unknown splitting 'half'; known are lie-trotter, strang"),
        (DepthChoice("dlstm", lstm=LSTMChoice("cnn")), "unknown hidden computation 'cnn'; known are ffn, linear"),
        (DepthChoice("dlstm", lstm=LSTMChoice(merge="mul")), "unknown merge 'mul'; known are add, concat"),
        (DepthChoice("dlstm", lstm=LSTMChoice(share="half")), "unknown sharing 'half'; known are gates, all, none"),
        (DepthChoice("dlstm", lstm=LSTMChoice(first_cell="one")), "unknown first cell 'one'; known are zero, learned"),
        (
            DepthChoice("dlstm", "gate"),
            "steps no F and has no feed-forward networks: coefficients 'tableau' is all",
        ),
        (DepthChoice("dlstm", function="layer-output"), "function 'increment' is all it takes"),
        (DepthChoice("dlstm", scope="san"), "scope 'san+ffn' is all it takes"),
        (DepthChoice("dlstm", steps=2), "steps '1' is all it takes"),
        (DepthChoice("dlstm", stage_parameters="separate"), "stage parameters 'shared' is all it takes"),
        (DepthChoice("dlstm", splitting="strang"), "splitting 'lie-trotter' is all it takes"),
        (DepthChoice("dlstm", layerdrop=0.1), "LayerDrop"),
        (DepthChoice("leapfrog", history="dense"), "pass --encoder-layer-history none for an encoder"),
        (DepthChoice("multistep", history="dlcl"), "pass --encoder-layer-history none for an encoder"),
        (DepthChoice("dlcl-increments", history="dlcl"), "--decoder-layer-history none for a decoder"),
        (DepthChoice("multistep-released", history="dlcl"), "--decoder-layer-history none for a decoder"),
        (DepthChoice("leapfrog", "gate"), "without stage weights: coefficients 'tableau' is all it takes"),
        (DepthChoice("polynet", "ones"), "without stage weights: coefficients 'tableau' is all it takes"),
        (DepthChoice("multistep", share_coefficients=True), "share coefficients 'False' is all it takes"),
        (DepthChoice("polynet", function="layer-output"), "function 'increment' is all it takes"),
        (DepthChoice("leapfrog", steps=2), "steps '1' is all it takes"),
        (DepthChoice("polynet", normalize_before=False), "the scheme is made of F: use pre-norm (normalize-before)"),
        (DepthChoice("leapfrog", scope="san"), "its scope is 'san+ffn' or 'san/ffn'"),
        (DepthChoice("polynet-released", scope="ffn"), "its scope is 'san+ffn' or 'san/ffn'"),
        (DepthChoice("multistep", stage_parameters="separate"), "at least two stages; scheme 'multistep' has one"),
        (DepthChoice("polynet", lstm=LSTMChoice("linear")), "go with scheme 'dlstm' alone"),
        (DepthChoice("multistep", layerdrop=0.1), "LayerDrop"),
        (DepthChoice("rk4", lstm=LSTMChoice("linear")), "go with scheme 'dlstm' alone"),
        (DepthChoice(coefficients="magic"), "unknown coefficients 'magic'; known are tableau"),
        (DepthChoice(history="sparse"), "unknown layer history 'sparse'; known are none, dense, dlcl"),
        (DepthChoice(function="f"), "unknown function 'f'; known are increment, layer-output"),
        (DepthChoice(scope="all"), "unknown scope 'all'; known are"),
        (DepthChoice(stage_parameters="own"), "unknown stage parameters 'own'; known are shared, separate"),
        (DepthChoice(normalize_before=False), "use pre-norm (normalize-before) or the function 'layer-output'"),
        (DepthChoice(layerdrop=0.1), "LayerDrop"),
        (DepthChoice(steps=0), "at least 1, not 0"),
        (DepthChoice("rk2", steps=2, function="layer-output"), "one step of size 1"),
        (DepthChoice("repeat", function="layer-output"), "would add y to it once more"),
        (DepthChoice(stage_parameters="separate"), "at least two stages; scheme 'euler' has one"),
        (DepthChoice(relative_values=True), "need a clip distance"),
        (DepthChoice("rk4", share_coefficients=True), "coefficients 'tableau' are not learned"),
    ],
)
def test_reasons(choice: DepthChoice, reason: str) -> None:
    assert reason in str(refusal(choice))
    with pytest.raises(ValueError):
        build_scheme(choice, 2, KINDS, DIM)


@pytest.mark.parametrize(("scope", "blocks"), [("san+ffn", 1), ("san/ffn", 2), ("san", 1), ("ffn", 1)])
def test_each_stepped_block_has_a_set_unless_all_share_one(scope: str, blocks: int) -> None:
    def size(share: bool) -> int:
        scheme = build_scheme(DepthChoice("rk2", "gate", share, scope=scope), 5, KINDS, DIM)
        return sum(p.numel() for p in scheme.parameters())

    assert size(False) == 5 * blocks * size(True) == 5 * blocks * (2 * DIM + 1)


def test_what_may_serve_another_scheme() -> None:
    fixed = DepthChoice("rk4").checkpoint_settings()
    assert swapped(fixed, DepthChoice("rk4")) is None
    assert swapped(DepthChoice("heun").checkpoint_settings(), DepthChoice("rk2")) is None  # one scheme under two names
    residual = (
        DepthChoice().checkpoint_settings()
    )  # which one Euler step is, whatever the scope and, in pre-norm, the function
    assert swapped(residual, DepthChoice(function="layer-output", scope="san/ffn")) is None
    assert swapped(residual, DepthChoice(function="layer-output", normalize_before=False)) is not None
    line, reason = swapped(fixed, DepthChoice("rk2"))
    assert (line, reason) == ("trained with scheme rk4; this model has scheme heun", None)
    assert swapped(fixed, DepthChoice("rk4", steps=2))[1] is None
    for trained, wanted in (
        (DepthChoice("rk2", "gate").checkpoint_settings(), DepthChoice("rk4")),
        (fixed, DepthChoice("rk4", "scalar")),
        (DepthChoice("rk2", "gate").checkpoint_settings(), DepthChoice("rk2", "gate", steps=2)),
    ):
        assert "learned coefficients belong to the scheme" in swapped(trained, wanted)[1]
    separate = DepthChoice("rk4", stage_parameters="separate")
    for trained, wanted in (
        (fixed, separate),
        (separate.checkpoint_settings(), DepthChoice("rk4")),
        (separate.checkpoint_settings(), DepthChoice("rk38", stage_parameters="separate")),
        (separate.checkpoint_settings(), DepthChoice("rk4", stage_parameters="separate", scope="san")),
    ):
        assert "belong to the stages" in swapped(trained, wanted)[1]


def test_recurrences_are_told_apart_and_keep_what_they_have_trained() -> None:
    residual = DepthChoice().checkpoint_settings()
    assert swapped(residual, DepthChoice("leapfrog")) == (
        "trained with scheme euler; this model has scheme leapfrog",
        None,
    )
    assert swapped(DepthChoice("leapfrog").checkpoint_settings(), DepthChoice("leapfrog", scope="san/ffn"))[1] is None
    assert (
        swapped(DepthChoice("polynet", scope="san/ffn").checkpoint_settings(), DepthChoice("polynet-released"))[
            0
        ].count(";")
        == 1
    )
    released = DepthChoice("polynet-released").checkpoint_settings()
    assert swapped(released, DepthChoice("polynet-released", scope="san/ffn")) is None  # the one that it has
    for name in ("multistep", "dlcl-increments", "multistep-released"):
        for trained, wanted in (
            (DepthChoice(name).checkpoint_settings(), DepthChoice()),
            (residual, DepthChoice(name)),
        ):
            assert "belong to the scheme that they were trained with" in swapped(trained, wanted)[1]


def test_what_weighs_stages_is_meant_for_a_tableau() -> None:
    gate = {"coefficients": "gate", "share_coefficients": True}
    for scheme in ("polynet", "leapfrog"):
        other = DepthChoice(scheme, **gate)
        assert refused_stack({"encoder": other, "decoder": DepthChoice("rk2", **gate)}) is None
        assert refused_stack({"encoder": DepthChoice("rk2", **gate), "decoder": other}) is None
        assert refused_stack({"encoder": DepthChoice(**gate), "decoder": other}) is not None
    separate = DepthChoice("polynet", stage_parameters="separate")
    assert refused_stack({"encoder": separate, "decoder": DepthChoice(stage_parameters="separate")}) is None
    remembering = DepthChoice("leapfrog")
    assert refused_stack({"encoder": remembering, "decoder": DepthChoice(history="dlcl")}) is None
    assert refused_stack({"encoder": DepthChoice(history="dlcl"), "decoder": remembering}) is None


def test_a_depth_wise_lstm_and_layers_with_residuals_serve_only_themselves() -> None:
    lstm = DepthChoice("dlstm", normalize_before=False).checkpoint_settings()
    assert swapped(lstm, DepthChoice("dlstm")) is None
    for trained, wanted in ((lstm, DepthChoice()), (DepthChoice().checkpoint_settings(), DepthChoice("dlstm"))):
        assert "have different parameters" in swapped(trained, wanted)[1]
    line, reason = swapped(DepthChoice().checkpoint_settings(), DepthChoice(splitting="strang"))
    assert line == "trained with splitting lie-trotter; this model has splitting strang"
    assert "other sub-layers" in reason


def test_the_parts_of_an_lstm_are_meant_for_the_stack_that_has_one() -> None:
    parts = LSTMChoice("linear", first_cell="learned")
    lstm, residual = DepthChoice("dlstm", lstm=parts), DepthChoice(lstm=parts)
    assert refused_stack({"encoder": lstm, "decoder": residual}) is None
    assert refused_stack({"encoder": residual, "decoder": lstm}) is None
    assert refused_stack({"encoder": residual, "decoder": residual}) == ("encoder", refusal(residual))
    gated = DepthChoice("rk2", "gate", True, lstm=parts)
    assert refused_stack({"encoder": gated, "decoder": DepthChoice("dlstm", "gate", True, lstm=parts)}) is None
    assert refused_stack({"encoder": lstm, "decoder": DepthChoice("rk5")}) == ("decoder", refusal(DepthChoice("rk5")))


def test_a_layer_history_combines_the_outputs_of_a_depth_wise_lstm() -> None:
    for history, before in (("dense", True), ("dlcl", False)):
        scheme = build_scheme(DepthChoice("dlstm", history=history, normalize_before=before), 2, KINDS, DIM)
        y0, cell = torch.randn(3, DIM), torch.zeros(3, DIM)
        depth_state = scheme.start(y0)
        for _ in range(2):
            depth_state = scheme.step([Block(field)], depth_state)
        memory, x = [y0], y0
        for layer in range(2):
            inner = scheme.scheme.step([Block(field)], LSTMState(x, layer, cell=cell))
            cell, norm = inner.cell, scheme.norms[layer]
            memory.append(norm(inner.y) if before else inner.y)
            x = sum(memory) / (layer + 2)
            x = x if before else norm(x)
        torch.testing.assert_close(scheme.finish(depth_state), x)


def test_what_concerns_stages_is_meant_for_the_stack_that_has_them() -> None:
    learned, residual = DepthChoice("rk2", "gate", True), DepthChoice("euler", "gate", True)
    assert refused_stack({"encoder": learned, "decoder": residual}) is None
    assert refused_stack({"encoder": residual, "decoder": learned}) is None
    assert refused_stack({"encoder": residual, "decoder": residual}) == ("encoder", refusal(residual))
    separate = DepthChoice(stage_parameters="separate")
    assert refused_stack({"encoder": separate, "decoder": separate}) == ("encoder", refusal(separate))
    assert refused_stack({"encoder": learned, "decoder": DepthChoice("rk5")})[0] == "decoder"
