"""The choice of parts: which scheme, coefficients and history move a stack through depth, and which go together."""

from __future__ import annotations

from dataclasses import dataclass

from ode_transformer.nn.layer_history import HISTORIES, LayerHistory
from ode_transformer.numerics import COEFFICIENTS, DepthScheme, RungeKutta, get_tableau


@dataclass(frozen=True)
class DepthChoice:
    """How one stack of layers is moved through.

    :param scheme: name of a tableau
    :param coefficients: key of ``COEFFICIENTS``
    :param share_coefficients: one set for the stack instead of one for each layer
    :param history: one of ``HISTORIES``
    :param normalize_before: the layers are pre-norm
    :param layerdrop: probability with which fairseq would leave out layers
    """

    scheme: str = "euler"
    coefficients: str = "tableau"
    share_coefficients: bool = False
    history: str = "none"
    normalize_before: bool = True
    layerdrop: float = 0.0


def refusal(choice: DepthChoice) -> str | None:
    """Why the parts of ``choice`` do not go together, in one line; None if they do.

    The one place that knows: options are validated by it, and the tests take their combinations from it.
    """
    try:
        tableau = get_tableau(choice.scheme)
    except ValueError as error:
        return str(error)
    if choice.coefficients not in COEFFICIENTS:
        return f"unknown coefficients {choice.coefficients!r}; known are {', '.join(COEFFICIENTS)}"
    if choice.history not in HISTORIES:
        return f"unknown layer history {choice.history!r}; known are {', '.join(HISTORIES)}"
    if choice.coefficients != "tableau" and tableau.stages < 2:
        return f"coefficients '{choice.coefficients}' weigh at least two stages; scheme '{choice.scheme}' has one"
    if choice.coefficients == "gate" and min(tableau.b) <= 0:
        return f"coefficients 'gate' start from positive weights; scheme '{choice.scheme}' has {tableau.b}"
    if not choice.normalize_before:
        return "post-norm layers are not y + F(y), which every scheme needs: use pre-norm (normalize-before)"
    if choice.layerdrop:
        return "LayerDrop hides how deep a layer stands, which a depth scheme has to know: set layerdrop to 0"
    return None


def build_scheme(choice: DepthChoice, layers: int, dim: int) -> DepthScheme:
    """The scheme of a stack of ``layers`` layers of width ``dim``.

    :raises ValueError: with the reason, if the parts do not go together
    """
    reason = refusal(choice)
    if reason is not None:
        raise ValueError(reason)
    tableau = get_tableau(choice.scheme)
    sets = 1 if choice.share_coefficients else layers
    scheme = RungeKutta(tableau, [COEFFICIENTS[choice.coefficients](tableau, dim) for _ in range(sets)])
    if choice.history == "none":
        return scheme
    return LayerHistory(scheme, layers, dim, learned=choice.history == "dlcl")
