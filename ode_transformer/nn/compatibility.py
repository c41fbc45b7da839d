"""Which options of depth, layers and attention go together: the one place that decides it.

Every :class:`~ode_transformer.nn.DepthChoice` asks it. docs/combinations.md is generated from its answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ode_transformer.numerics import PROJECTED, STEP_LENGTHS, ButcherTableau, Recurrence

if TYPE_CHECKING:
    from ode_transformer.nn.depth_choice import DepthChoice


def refusal(choice: DepthChoice) -> str | None:
    """Return in one line why the options of a stack do not go together; None if they do."""
    return next(_reasons(choice), None)


def _reasons(choice: DepthChoice) -> Iterator[str]:
    for option in choice.options().values():
        value = choice.value(option)
        if value != option.default and not option.read_by(choice):
            yield f"{option.title} {value}: only with {option.needs}"
    yield from _reasons_of_weights(choice)
    yield from _reasons_of_steps(choice)
    if isinstance(choice.rule, Recurrence):
        yield from _reasons_of_recurrence(choice, choice.rule)
    if choice.layerdrop:
        yield "LayerDrop hides how deep a layer stands, which a depth scheme has to know: set layerdrop to 0"


def _reasons_of_weights(choice: DepthChoice) -> Iterator[str]:
    name, tableau = choice.coefficients, choice.weighed_stages
    if tableau is None or name == "tableau":
        return
    if tableau.stages < 2 and name not in STEP_LENGTHS:
        yield f"coefficients '{name}' weigh at least two stages; scheme '{tableau.name}' has one"
    if name in PROJECTED and not all(0 < b < 1 for b in tableau.b):
        yield f"coefficients '{name}' start from weights between 0 and 1; scheme '{tableau.name}' has {tableau.b}"


def _reasons_of_steps(choice: DepthChoice) -> Iterator[str]:
    rule = choice.rule
    one_whole_step = choice.steps == choice.step_size == 1
    if choice.function == "layer-output":
        if isinstance(rule, ButcherTableau) and rule.order == 0:
            yield f"scheme '{choice.scheme}' applies the layer itself; 'layer-output' would add y to it once more"
        if not one_whole_step:
            yield "the output of a layer is no rate of change: 'layer-output' goes with one step of size 1"
    elif not choice.normalize_before and not choice.is_lstm:
        alternative = " or the function 'layer-output'" if isinstance(rule, ButcherTableau) else ""
        yield f"post-norm layers are not y + F(y): use pre-norm (normalize-before){alternative}"
    if choice.normalize_step:
        if choice.function != "increment" or not one_whole_step:
            yield "a normalised step is one step of what a layer adds, and its length is that of the normalisation"
        if choice.coefficients == "scalar" and choice.stages == 1:
            yield "the normalisation of a step undoes a scalar weight: choose coefficients 'vector' or 'tableau'"
    if choice.middle_layers and choice.stage_parameters == "separate":
        yield "with middle layers, all layers have the same parts: stage parameters have to be shared"


def _reasons_of_recurrence(choice: DepthChoice, recurrence: Recurrence) -> Iterator[str]:
    if (recurrence.remembers or recurrence.each_sublayer) and choice.scope not in ("san+ffn", "san/ffn"):
        yield "the scheme has to step all that layers add: its scope is 'san+ffn' or 'san/ffn'"
    if recurrence.remembers and choice.middle_layers:
        yield "the scheme reads earlier layers, which have to be stepped by it too: it goes without middle layers"
    if recurrence.remembers and choice.history != "none":
        yield (
            "the scheme reads earlier layers itself, which a layer history would replace: pass "
            "--encoder-layer-history none for an encoder, --decoder-layer-history none for a decoder"
        )
