"""The table of parts that go together, made from the predicate that refuses the others.

python -m ode_transformer.analysis.depth.combinations > docs/combinations.md
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ode_transformer.nn import (
    FIRST_CELLS,
    FUNCTIONS,
    HIDDEN,
    HISTORIES,
    LSTM,
    MERGES,
    SCOPES,
    SHARES,
    STAGE_PARAMETERS,
    AttentionChoice,
    DepthChoice,
    LSTMChoice,
    refusal,
)
from ode_transformer.numerics import COEFFICIENTS, RECURRENCES, SPLITTINGS, TABLEAUS

Part = Mapping[str, Any]

# What stands in the header or margin of a table, and the choice that it makes.
SCHEMES: dict[str, Part] = {f"`{name}`": {"scheme": name} for name in (*(t.name for t in TABLEAUS), *RECURRENCES, LSTM)}
WEIGHTS: dict[str, Part] = {f"`{name}`": {"coefficients": name} for name in COEFFICIENTS}
OTHERS: dict[str, Part] = {
    **{f"function `{name}`": {"function": name} for name in FUNCTIONS},
    "no pre-norm, `increment`": {"normalize_before": False},
    "no pre-norm, `layer-output`": {"normalize_before": False, "function": "layer-output"},
    **{f"scope `{name}`": {"scope": name} for name in SCOPES},
    "shared coefficients": {"share_coefficients": True},
    "2 steps": {"steps": 2},
    "2 steps, `layer-output`": {"steps": 2, "function": "layer-output"},
    **{f"{name} stage parameters": {"stage_parameters": name} for name in STAGE_PARAMETERS},
    **{f"splitting `{name}`": {"splitting": name} for name in SPLITTINGS},
    **{f"hidden `{name}`": {"lstm": LSTMChoice(hidden=name)} for name in HIDDEN},
    **{f"merge `{name}`": {"lstm": LSTMChoice(merge=name)} for name in MERGES},
    **{f"share `{name}`": {"lstm": LSTMChoice(share=name)} for name in SHARES},
    **{f"first cell `{name}`": {"lstm": LSTMChoice(first_cell=name)} for name in FIRST_CELLS},
    **{f"history `{name}`": {"history": name} for name in HISTORIES},
    "relative positions, keys": {"attention": AttentionChoice(8)},
    "relative positions, values too": {"attention": AttentionChoice(8, relative_values=True)},
    "relative positions, values alone": {"attention": AttentionChoice(relative_values=True)},
    "LayerDrop": {"layerdrop": 0.1},
}
KINDS: dict[str, Part] = {
    "one stage (`euler`)": {"scheme": "euler"},
    "several (`rk4`)": {"scheme": "rk4"},
    "several, learned": {"scheme": "rk4", "coefficients": "gate"},
    "`repeat`": {"scheme": "repeat"},
    "`leapfrog`, `multistep`, `dlcl-increments`": {"scheme": "leapfrog"},
    **{f"`{name}`": {"scheme": name} for name in ("multistep-released", "polynet", "polynet-released", LSTM)},
}


def table(margin: Mapping[str, Part], header: Mapping[str, Part], reasons: list[str]) -> list[str]:
    """A Markdown table; a cell says yes, or the number of the reason why not, which is added to ``reasons``."""

    def cell(parts: Sequence[Part]) -> str:
        choice = DepthChoice()
        for part in parts:
            choice = replace(choice, **part)
        reason = refusal(choice)
        if reason is None:
            return "yes"
        if reason not in reasons:
            reasons.append(reason)
        return f"– ({reasons.index(reason) + 1})"

    lines = [f"| | {' | '.join(header)} |", "|---|" + "---|" * len(header)]
    for name, part in margin.items():
        lines.append(f"| {name} | {' | '.join(cell((part, other)) for other in header.values())} |")
    return lines


def page() -> str:
    """docs/combinations.md."""
    reasons: list[str] = []
    lines = [
        "# Which parts go together",
        "",
        "Made by `python -m ode_transformer.analysis.depth.combinations > docs/combinations.md` from the predicate",
        "that refuses the others (`ode_transformer/nn/compatibility.py`); a refused one ends in the line named by its",
        "number.",
        "",
        "## Schemes and coefficients",
        "",
        *table(SCHEMES, WEIGHTS, reasons),
        "",
        "## Schemes and everything else",
        "",
        *table(OTHERS, KINDS, reasons),
        "",
        "## Reasons",
        "",
        *(f"{number}. {reason}" for number, reason in enumerate(reasons, 1)),
        "",
        "Separate stage parameters concern stacks whose scheme has several stages, coefficients those whose scheme",
        "weighs them: beside such an encoder, a decoder that stays with `euler` takes neither. Likewise hidden, merge,",
        "share and first cell concern the stacks that have a depth-wise LSTM. What has no row here goes together",
        "freely, but that a Reformer's layers have no splitting `strang`, and without a PreNet its encoder has nothing",
        "to step.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
