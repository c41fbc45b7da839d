"""Which options of depth, layers and attention go together: the one place that decides it.

Every :class:`~ode_transformer.nn.DepthChoice` asks it. docs/combinations.md is generated from its answers.

Options that change nothing are refused, too. Models were trained with some of them, before they were: a choice that
``accepts_idle`` options has them all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ode_transformer.numerics import PROJECTED, STEP_LENGTHS, ButcherTableau, Recurrence

if TYPE_CHECKING:
    from ode_transformer.nn.depth_choice import DepthChoice


class StackShape(NamedTuple):
    """Sizes of a stack that decide over its options.

    :param layers: number of its layers
    :param attentions: number of attentions of a layer
    """

    layers: int
    attentions: int


def refusal(choice: DepthChoice, shape: StackShape | None = None) -> str | None:
    """Return in one line why the options of a stack do not go together; None if they do.

    :param shape: that of the stack, if it is known
    """
    if shape is not None and choice.middle_layers > shape.layers:
        return f"middle layers {choice.middle_layers}: the stack has {shape.layers} layers"
    reason = next(_reasons(choice), None)
    if reason is None and not choice.accepts_idle:
        reason = next((f"{name}{reason}" for name, reason in _titled(choice, shape)), None)
    return reason


def _titled(choice: DepthChoice, shape: StackShape | None) -> Iterator[tuple[str, str]]:
    for name, reason in idle_options(choice, shape):
        option = choice.options().get(name)
        yield "" if option is None else f"{option.title} {choice.value(option)}: ", reason


def idle_options(choice: DepthChoice, shape: StackShape | None = None) -> Iterator[tuple[str, str]]:
    """Yield the name of each option whose value changes nothing, and the reason; no name where several undo another.

    :param shape: that of the stack, if it is known
    """
    if choice.is_residual or choice.applies_layers:
        yield from _idle_in_residual_layers(choice)
    if isinstance(choice.rule, Recurrence):
        yield from _idle_in_recurrences(choice, choice.rule)
    if choice.normalize_step:
        yield from _idle_before_normalisation(choice)
    if shape is not None:
        yield from _idle_in_shape(choice, shape)


def _idle_in_residual_layers(choice: DepthChoice) -> Iterator[tuple[str, str]]:
    if choice.coefficients != "tableau":
        yield "coefficients", "with function 'layer-output' a scheme of one stage applies the layer, and weighs nothing"
    if choice.scope != "san+ffn":
        yield "scope", "one whole step of Euler's method is the residual layer, however it is divided"


def _idle_in_recurrences(choice: DepthChoice, recurrence: Recurrence) -> Iterator[tuple[str, str]]:
    if choice.coefficients != "tableau" and not recurrence.weighs_stages:
        yield "coefficients", "the scheme takes the output of its one prediction as it is"
    if choice.scope == "san/ffn" and recurrence.each_sublayer:
        yield "scope", "the scheme steps each sub-layer without it"


def _idle_before_normalisation(choice: DepthChoice) -> Iterator[tuple[str, str]]:
    rule = choice.rule
    if choice.coefficients == "ones" and isinstance(rule, ButcherTableau) and len(set(rule.b)) == 1:
        yield "coefficients", "the normalisation of a step undoes a factor that all weights have"
    if choice.gate_sum != "one":
        yield "gate_sum", "the normalisation of a step undoes a factor that all weights have"
    if choice.splitting == "strang" and choice.stepped_scope in ("san/ffn", "ffn"):
        yield "", "the normalisation of a step undoes the half steps of splitting 'strang': choose scope 'san+ffn'"


def _idle_in_shape(choice: DepthChoice, shape: StackShape) -> Iterator[tuple[str, str]]:
    if shape.layers == 0:
        for name, option in choice.options().items():
            if choice.value(option) != option.default and not option.fairseqs:
                yield name, "the stack has no layers"
    one_block = shape.layers == 1 and choice.stepped_scope == "san+ffn"
    if one_block and isinstance(choice.rule, Recurrence) and choice.rule.least_blocks > 1:
        yield "scheme", "it reads earlier layers, and the stack has one layer"
    if choice.value_residual != "none" and shape.layers == 1:
        yield "value_residual", "a stack of one layer has no later layer to add to"
    if choice.middle_layers and choice.middle_layers == shape.layers:
        yield "middle_layers", "these are all layers of the stack"
    if choice.lstm.merge.startswith("concat") and shape.attentions == 1:
        yield "merge", "a layer of the stack has a single attention"


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
