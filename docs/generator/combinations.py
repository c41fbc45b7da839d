"""Table of the options that go together, generated from the function that refuses the others.

python docs/generate.py
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from generator.scheme_facts import scheme_names
from ode_transformer.nn import LSTM, AttentionChoice, DepthChoice
from ode_transformer.numerics import COEFFICIENTS
from ode_transformer.support.tables import markdown_table

# Fields of a DepthChoice, with their values.
Fields = Mapping[str, Any]

# Titles of rows and columns, each with the fields that it sets.
SCHEMES: dict[str, Fields] = {f"`{name}`": {"scheme": name} for name in scheme_names()}
WEIGHTS: dict[str, Fields] = {f"`{name}`": {"coefficients": name} for name in COEFFICIENTS}


def option_rows() -> dict[str, Fields]:
    """Return a row for each value that is not a default, but of schemes and coefficients, which have another table."""
    rows: dict[str, Fields] = {}
    for name, option in DepthChoice.options().items():
        for value in option.samples()[1:] if name not in ("scheme", "coefficients") else ():
            title = option.title if value is True else f"{option.title} `{value}`"
            rows[title] = DepthChoice.arguments({option.name: value})
    return rows


OTHERS: dict[str, Fields] = option_rows() | {
    "no pre-norm, `layer-output`": {"function": "layer-output", "normalize_before": False},
    "2 steps, `layer-output`": {"steps": 2, "function": "layer-output"},
    "step size 2, `layer-output`": {"step_size": 2.0, "function": "layer-output"},
    "relative positions, values too": {"attention": AttentionChoice(8, relative_values=True)},
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
        try:
            DepthChoice(**{**row, **column})
        except ValueError as error:
            reason = without_names(str(error))
        else:
            return "yes"
        if reason not in reasons:
            reasons.append(reason)
        return f"– ({reasons.index(reason) + 1})"

    entries = [[title, *(entry(row, column) for column in columns.values())] for title, row in rows.items()]
    return markdown_table(["", *columns], entries, alignment="l" * (len(columns) + 1))


def without_names(reason: str) -> str:
    """Return the reason for a refusal with "the scheme" and "the coefficients" in place of the refused names."""
    reason = re.sub(r"coefficients '[\w-]+' (?=weigh|start)", "the coefficients ", reason)
    titles = "|".join(option.title for option in DepthChoice.options().values())
    reason = re.sub(rf"^(?:{titles}) [\w+/.-]+: ", "", reason)
    return re.sub(r"scheme '[\w-]+'", "the scheme", reason)


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
        "A flag for both stacks is ignored by a stack that has no use for it, and refused if neither has one.",
        "",
        "An option that changes nothing is refused, too, but what was trained with it still loads. Beside those above",
        "these are, in a stack of one layer, a value residual and `leapfrog`, `multistep`, `nesterov` or `heavy-ball`",
        "with scope `san+ffn`; as many middle layers as a stack has layers; `concat`, `concat-unprojected` in layers",
        "of one attention; and all options of a stack without layers.",
        "",
        "A Reformer's layers take no splitting `strang` and no value residual.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
