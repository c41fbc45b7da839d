"""Recurrences over depth: their formulas as loops, the order that they have as solvers, and what they start as."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from schemes_for_tests import error_after, integrate, states
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ode_transformer.numerics import RECURRENCES, Scheme, recurrences, register_recurrence, tableau

DIM = 5
Field = Callable[[Tensor], Tensor]
FIELDS: list[Field] = [torch.tanh, torch.sin, lambda y: 0.5 * y.flip(-1), lambda y: y * y.roll(1, -1)]


def build(name: str, **options: bool) -> Scheme:
    """Every parameter away from its start."""
    scheme = RECURRENCES[name].build(len(FIELDS), DIM, **options).double()
    for parameter in scheme.parameters():
        nn.init.normal_(parameter)
    return scheme


def norm(layer: nn.LayerNorm, x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * layer.weight + layer.bias


def pcformer(inputs: Sequence[Sequence[float]], gamma: Sequence[float], iterations: int) -> Callable:
    """Li et al. 2024: stages r + Σ a u as they are written there, here with weights of a tableau; Liu et al. 2025."""

    def loop(scheme: Scheme, y: list[Tensor], fields: Sequence[Field]) -> None:
        s = [y[0]]
        for n, f in enumerate(fields):
            outputs: list[Tensor] = []
            for row in inputs:
                z = y[n] + sum(a * u for a, u in zip(row, outputs, strict=True))
                outputs.append(z + f(z))
            p = outputs[0] if len(outputs) == 1 else y[n] + sum(g * u for g, u in zip(gamma, outputs, strict=True))
            s.append(norm(scheme.predicted_norms[n], p))
            for _ in range(iterations):
                c = sum(scheme.weight[n + 1, i] * s[i] for i in range(n + 2))
                s[n + 1] = norm(scheme.corrected_norms[n], c + f(c))
            y.append(sum(scheme.output_weight[n + 1, i] * s[i] for i in range(n + 2)))

    return loop


RK4_INPUTS, RK4_WEIGHTS = ([], [1 / 2], [0, 1 / 2], [0, 0, 1]), (1 / 6, 1 / 3, 1 / 3, 1 / 6)


def implicit_euler(scheme: Scheme, y: list[Tensor], fields: Sequence[Field]) -> None:
    for n, f in enumerate(fields):
        p = y[n] + f(y[n])
        for _ in range(3):
            p = y[n] + f(p)
        y.append(p)


def heun_moulton(scheme: Scheme, y: list[Tensor], fields: Sequence[Field]) -> None:
    for n, f in enumerate(fields):
        p = y[n] + (f(y[n]) + f(y[n] + f(y[n]))) / 2
        y.append(y[n] + (f(y[n]) + f(p)) / 2)


def rk4_moulton(scheme: Scheme, y: list[Tensor], fields: Sequence[Field]) -> None:
    for n, f in enumerate(fields):
        k1 = f(y[n])
        k2 = f(y[n] + k1 / 2)
        k3 = f(y[n] + k2 / 2)
        p = y[n] + (k1 + 2 * k2 + 2 * k3 + f(y[n] + k3)) / 6
        if n < 2:
            y.append(y[n] + (k1 + 2 * k2 + 2 * k3 + f(p)) / 6)
        else:
            y.append(y[n] + (9 * f(p) + 19 * k1 - 5 * fields[n - 1](y[n - 1]) + fields[n - 2](y[n - 2])) / 24)


LOOPS = {
    "pcformer2": pcformer(([], [1]), (1 / 2, 1 / 2), 1),
    "pcformer4": pcformer(RK4_INPUTS, RK4_WEIGHTS, 1),
    "iiet": pcformer(([],), (), 3),
    "implicit-euler": implicit_euler,
    "heun-moulton": heun_moulton,
    "rk4-moulton": rk4_moulton,
}


NORMALIZED = [(name, {"normalize_step": True}) for name, entry in RECURRENCES.items() if entry.normalizes_step]


@pytest.mark.parametrize("name", LOOPS)
def test_equals_its_formula(name: str) -> None:
    """The other recurrences are stepped over layers and compared with their loops in tests/nn/test_scheme.py."""
    scheme = build(name)
    y0 = torch.randn(3, 2, DIM, dtype=torch.float64)
    expected = [y0]
    LOOPS[name](scheme, expected, FIELDS)
    largest = max(1.0, expected[-1].abs().max().item())  # differences of large states leave small elements inexact
    torch.testing.assert_close(integrate(scheme, FIELDS, y0), expected[-1], rtol=0, atol=1e-13 * largest)


@pytest.mark.parametrize("recurrence", RECURRENCES.values(), ids=RECURRENCES)
def test_an_entry_says_what_its_scheme_does(recurrence) -> None:
    scheme, calls = build(recurrence.name), []

    def counted(f: Field) -> Field:
        return lambda y: calls.append(f) or f(y)

    y0 = torch.randn(2, DIM, dtype=torch.float64)
    integrate(scheme, map(counted, FIELDS), y0)
    assert calls == [f for f in FIELDS for _ in range(recurrence.stages)]
    norms = sum(p.numel() for each in getattr(scheme, "norms", []) for p in each.parameters())
    assert bool(norms) == recurrence.normalizes
    assert (sum(p.numel() for p in scheme.parameters()) > norms) == recurrence.trained
    shown = [weight for block in range(len(FIELDS)) for weight in scheme.weights(block)]
    assert bool(shown) == recurrence.trained
    _, state = states(scheme, FIELDS[:1], y0)
    assert any(isinstance(part, Tensor) for part in tree_leaves(state)) == recurrence.remembers


@pytest.mark.parametrize(("name", "options"), [*((name, {}) for name in RECURRENCES), *NORMALIZED])
def test_gradients(name: str, options: dict) -> None:
    scheme = build(name, **options)
    y0 = torch.randn(2, DIM, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(lambda y0, *_: integrate(scheme, FIELDS, y0), (y0, *scheme.parameters()), fast_mode=True)


@pytest.mark.parametrize("recurrence", RECURRENCES.values(), ids=RECURRENCES)
def test_measured_order_is_the_stated_one(recurrence) -> None:
    """With the weights that training starts from. Order 0 is a fact too: the rule does not converge."""
    torch.manual_seed(0)
    errors = [error_after(recurrence.build(steps, 2).double(), steps) for steps in (32, 64)]
    if recurrence.order:
        assert math.log2(errors[0] / errors[1]) == pytest.approx(recurrence.order, abs=0.1)
    else:
        assert min(errors) > 0.01


@pytest.mark.parametrize("order", [1, 3])
def test_a_recurrence_with_a_wrong_order_is_refused(order: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrences, "RECURRENCES", {})
    monkeypatch.setattr(tableau, "_NAMES", set())
    state = torch.get_rng_state()
    with pytest.raises(ValueError, match=f"scheme leapfrog: its measured order is 2.0, not {order}"):
        register_recurrence(replace(RECURRENCES["leapfrog"], order=order))
    register_recurrence(RECURRENCES["leapfrog"])
    assert list(recurrences.RECURRENCES) == ["leapfrog"]
    torch.testing.assert_close(torch.get_rng_state(), state)
