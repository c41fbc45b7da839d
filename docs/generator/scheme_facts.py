"""Facts about each depth scheme: what kind it is, what it costs and keeps, and the order of its error, measured."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from ode_transformer.nn import LSTM, DepthChoice, SubLayerKind, build_scheme
from ode_transformer.numerics import (
    RECURRENCES,
    TABLEAUS,
    ButcherTableau,
    Recurrence,
)

DEPTH = 6  # layers after which the states of a scheme are counted


@dataclass(frozen=True)
class SchemeFacts:
    """Facts about a scheme.

    :param kind: how it computes its next state, in a few words
    :param evaluations: of a layer in one step
    :param states: tensors that layer ``DEPTH`` passes on
    :param order: that its entry states; None for the depth-wise LSTM, which solves no equation
    :param measured_order: None if its error does not shrink
    """

    kind: str
    evaluations: int
    states: int
    order: int | None
    measured_order: float | None


def scheme_names() -> tuple[str, ...]:
    """Return the name of each scheme once, without aliases."""
    return (*(tableau.name for tableau in TABLEAUS), *RECURRENCES, LSTM)


def aliases(scheme: str) -> tuple[str, ...]:
    """Return the further names of a scheme."""
    return next((tableau.aliases for tableau in TABLEAUS if tableau.name == scheme), ())


def name_without_alias(scheme: str) -> str:
    """Return the name of a scheme that may be given by an alias."""
    rule = DepthChoice(scheme).rule
    return LSTM if rule is None else rule.name


def scheme_facts(name: str) -> SchemeFacts:
    """Collect and measure the facts about a scheme."""
    choice = DepthChoice(name)
    order = None if choice.rule is None else choice.rule.order
    measured = None if order is None else measure_order(name)
    return SchemeFacts(kind(choice.rule), choice.stages, count_states(name), order, measured)


def kind(rule: ButcherTableau | Recurrence | None) -> str:
    """Return in a few words how a scheme computes its next state; None is the depth-wise LSTM."""
    if rule is None:
        return "gated"
    if isinstance(rule, ButcherTableau):
        return "explicit Runge–Kutta" if rule.order else "layer applied repeatedly"
    if rule.predictor is not None:
        method = "implicit by iteration" if rule.predictor.stages == 1 else "predictor–corrector"
    else:
        method = "explicit"
    return f"{method}, {'multistep' if rule.remembers else 'one step'}"


def _build(name: str, layers: int, dim: int) -> Any:
    torch.manual_seed(0)
    return build_scheme(DepthChoice(name), layers, {"attention": SubLayerKind.SELF_ATTENTION}, dim).double()


def _integrate(scheme: Any, f: Callable[[Tensor], Tensor], y: Tensor, layers: int) -> tuple[Tensor, Any]:
    """Step y' = f(y) through layers, and return y and the state of the scheme."""
    state = scheme.start(y)
    for layer in range(layers):
        y, state = scheme(lambda z, _: f(z), y, state, layer)
    return y, state


def count_states(name: str) -> int:
    """Count the tensors [.., dim] that a scheme passes on after ``DEPTH`` layers, y among them."""
    start = torch.zeros(1, 4, dtype=torch.float64)
    y_and_state = _integrate(_build(name, DEPTH, 4), torch.zeros_like, start, DEPTH)
    return len({id(tensor) for tensor in tree_leaves(y_and_state) if tensor is not None})


def measure_order(name: str) -> float | None:
    """Measure the power with which the error at t = 1 shrinks from 64 to 128 layers, each one step.

    The problem is y' = y² cos t, y(0) = ½, with the solution y = 1 / (2 − sin t).

    :returns: None if the error stays above 0.01
    """

    def error(steps: int) -> float:
        def step(y: Tensor) -> Tensor:
            value, time = y
            return torch.stack([value**2 * torch.cos(time), torch.ones_like(time)]) / steps

        y, _ = _integrate(_build(name, steps, 2), step, torch.tensor([0.5, 0.0], dtype=torch.float64), steps)
        return abs(y[0].item() - 1 / (2 - math.sin(1.0)))

    with torch.no_grad():
        errors = error(64), error(128)
    return None if min(errors) > 0.01 else math.log2(errors[0] / errors[1])
