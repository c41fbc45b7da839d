"""Table of the options that go together, generated from the function that refuses the others.

python docs/generate.py
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from generator.scheme_facts import scheme_names
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
from ode_transformer.numerics import COEFFICIENTS, SPLITTINGS
from ode_transformer.support.tables import markdown_table

# Fields of a DepthChoice, with their values.
Fields = Mapping[str, Any]

# Titles of rows and columns, each with the fields that it sets.
SCHEMES: dict[str, Fields] = {f"`{name}`": {"scheme": name} for name in scheme_names()}
WEIGHTS: dict[str, Fields] = {f"`{name}`": {"coefficients": name} for name in COEFFICIENTS}
OTHERS: dict[str, Fields] = {
    **{f"function `{name}`": {"function": name} for name in FUNCTIONS},
    "no pre-norm, `increment`": {"normalize_before": False},
    "no pre-norm, `layer-output`": {"normalize_before": False, "function": "layer-output"},
    **{f"scope `{name}`": {"scope": name} for name in SCOPES},
    "shared coefficients": {"share_coefficients": True},
    "a gate's sum `stages`": {"gate_sum": "stages"},
    "a gate's start `xavier`": {"gate_start": "xavier"},
    "2 steps": {"steps": 2},
    "2 steps, `layer-output`": {"steps": 2, "function": "layer-output"},
    "step size 2": {"step_size": 2.0},
    "step size 2, `layer-output`": {"step_size": 2.0, "function": "layer-output"},
    **{f"{name} stage parameters": {"stage_parameters": name} for name in STAGE_PARAMETERS},
    "normalised step": {"normalize_step": True},
    "2 middle layers": {"middle_layers": 2},
    "value residual": {"value_residual": "learned"},
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
KINDS: dict[str, Fields] = {
    "one stage (`euler`)": {"scheme": "euler"},
    "several (`rk4`)": {"scheme": "rk4"},
    "several, learned": {"scheme": "rk4", "coefficients": "gate"},
    "one stage, learned (`scalar`)": {"scheme": "euler", "coefficients": "scalar"},
    "`repeat`": {"scheme": "repeat"},
    "`leapfrog`, `multistep`, `dlcl-increments`": {"scheme": "leapfrog"},
    "`nesterov`, `heavy-ball`": {"scheme": "nesterov"},
    **{f"`{name}`": {"scheme": name} for name in ("multistep-released", "polynet", "polynet-released")},
    "`pcformer2`, `pcformer4`": {"scheme": "pcformer2"},
    "`pcformer4`, learned": {"scheme": "pcformer4", "coefficients": "gate"},
    "`iiet`": {"scheme": "iiet"},
    "`implicit-euler`": {"scheme": "implicit-euler"},
    "`heun-moulton`": {"scheme": "heun-moulton"},
    "`rk4-moulton`": {"scheme": "rk4-moulton"},
    f"`{LSTM}`": {"scheme": LSTM},
}


def table(rows: Mapping[str, Fields], columns: Mapping[str, Fields], reasons: list[str]) -> str:
    """Return a Markdown table whose entries are "yes" or the number of the reason for the refusal.

    :param reasons: list to which new reasons are added
    """

    def entry(row: Fields, column: Fields) -> str:
        choice = replace(replace(DepthChoice(), **row), **column)
        reason = refusal(choice)
        if reason is None:
            return "yes"
        reason = without_names(reason)
        if reason not in reasons:
            reasons.append(reason)
        return f"– ({reasons.index(reason) + 1})"

    entries = [[title, *(entry(row, column) for column in columns.values())] for title, row in rows.items()]
    return markdown_table(["", *columns], entries, alignment="l" * (len(columns) + 1))


def without_names(reason: str) -> str:
    """Return the reason for a refusal with "the scheme" and "the coefficients" in place of the refused names."""
    reason = re.sub(r"coefficients '[\w-]+' (?=weigh|start)", "the coefficients ", reason)
    return re.sub(rf"scheme '(?!{LSTM}' (?:steps|alone))[\w-]+'", "the scheme", reason)


def page() -> str:
    """Return the text of docs/combinations.md."""
    reasons: list[str] = []
    lines = [
        "# Options that go together",
        "",
        "`python docs/generate.py` writes this page from `ode_transformer/nn/compatibility.py`, which refuses all",
        "other combinations. A number in an entry is a reason of the list below. `rk2` is Heun's scheme; the",
        "architectures called `*_rk2` combine it with `gate`. In the second table coefficients are `tableau`, or",
        "`gate` where a column says learned.",
        "",
        "## Schemes and coefficients",
        "",
        table(SCHEMES, WEIGHTS, reasons),
        "",
        "## Schemes and everything else",
        "",
        table(OTHERS, KINDS, reasons),
        "",
        "## Reasons",
        "",
        *(f"{number}. {reason}" for number, reason in enumerate(reasons, 1)),
        "",
        "Encoder and decoder share one set of flags, and a flag that only one of them can use is ignored for the",
        "other. Separate stage parameters and middle layers need a scheme with several stages. Coefficients need a",
        "scheme that weighs its stages. The flags `--dlstm-*` need a",
        "depth-wise LSTM.",
        "",
        "Options without a row go together with all others, with three exceptions. A Reformer's layers take no",
        "splitting `strang` and no value residual. A Reformer without a PreNet has no encoder layers to step.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
