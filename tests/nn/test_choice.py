"""All combinations of parts: built and stepped, or refused with the reason that the predicate gives."""

import itertools

import pytest
import torch

from ode_transformer.nn import HISTORIES, DepthChoice, build_scheme, refusal
from ode_transformer.numerics import COEFFICIENTS, TABLEAUS

DIM = 4
COMBINATIONS = [
    DepthChoice(tableau.name, coefficients, share, history)
    for tableau, coefficients, share, history in itertools.product(TABLEAUS, COEFFICIENTS, (False, True), HISTORIES)
]


def field(y: torch.Tensor) -> torch.Tensor:
    return 0.5 * torch.tanh(y)


@pytest.mark.parametrize(
    "choice", COMBINATIONS, ids=lambda c: f"{c.scheme}-{c.coefficients}-{c.share_coefficients}-{c.history}"
)
def test_each_combination_works_or_is_refused(choice: DepthChoice) -> None:
    reason = refusal(choice)
    if reason is not None:
        assert "\n" not in reason
        with pytest.raises(ValueError) as raised:
            build_scheme(choice, 2, DIM)
        assert str(raised.value) == reason
        return
    scheme = build_scheme(choice, 2, DIM)
    y0 = torch.randn(3, DIM, requires_grad=True)
    scheme.integrate([field, field], y0).square().sum().backward()
    assert y0.grad.isfinite().all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in scheme.parameters())
    if choice.history == "none" and choice.coefficients != "scalar":
        torch.testing.assert_close(scheme.integrate([torch.zeros_like] * 2, y0), y0)


def test_exactly_these_combinations_are_refused() -> None:
    """One stage with anything to weigh, and a gate over a weight of zero."""
    refused = {(c.scheme, c.coefficients) for c in COMBINATIONS if refusal(c)}
    one_stage = {(t.name, name) for t in TABLEAUS for name in COEFFICIENTS if t.stages == 1 and name != "tableau"}
    zero_weight = {(t.name, "gate") for t in TABLEAUS if 0 in t.b}
    assert refused == one_stage | zero_weight
    assert {("euler", "gate"), ("euler", "ones"), ("euler", "scalar"), ("midpoint", "gate")} <= refused


@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        (DepthChoice(scheme="rk5"), "unknown scheme 'rk5'; known are euler"),
        (DepthChoice(coefficients="magic"), "unknown coefficients 'magic'; known are tableau"),
        (DepthChoice(history="sparse"), "unknown layer history 'sparse'; known are none, dense, dlcl"),
        (DepthChoice(normalize_before=False), "pre-norm"),
        (DepthChoice(layerdrop=0.1), "LayerDrop"),
    ],
)
def test_reasons(choice: DepthChoice, reason: str) -> None:
    assert reason in str(refusal(choice))


def test_shared_coefficients_have_one_set() -> None:
    def size(share: bool) -> int:
        scheme = build_scheme(DepthChoice("rk2", "gate", share), 5, DIM)
        return sum(p.numel() for p in scheme.parameters())

    assert size(False) == 5 * size(True) == 5 * (2 * DIM + 1)
