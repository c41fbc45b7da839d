"""Which options of depth, layers and attention go together: the one place that decides it.

Options are validated by these functions, the tests take their combinations from them, and the tables in
docs/combinations.md are generated from them.
"""

from collections.abc import Mapping, Sequence

from ode_transformer.nn.depth_choice import DepthChoice
from ode_transformer.nn.depth_wise_lstm import LSTM, LSTMChoice
from ode_transformer.numerics import (
    LEARNED,
    ButcherTableau,
    Recurrence,
    coefficients_refusal,
    get_tableau,
)


def refusal(choice: DepthChoice) -> str | None:
    """Return in one line why the options of a stack do not go together; None if they do."""
    reason = _option_refusal(choice)
    if reason is not None:
        return reason
    if choice.is_lstm:
        reason = _lstm_refusal(choice)
    elif isinstance(choice.rule, Recurrence):
        reason = _recurrence_refusal(choice, choice.rule) or _residual_refusal(choice)
    else:
        reason = _runge_kutta_refusal(choice) or _residual_refusal(choice)
    if reason is not None:
        return reason
    if choice.layerdrop:
        return "LayerDrop hides how deep a layer stands, which a depth scheme has to know: set layerdrop to 0"
    if choice.attention.relative_values and not choice.attention.max_relative_positions:
        return "relative positions on the values need a clip distance (max-relative-positions) above 0"
    return None


def refused_stack(choices: Mapping[str, DepthChoice]) -> tuple[str, str] | None:
    """Return the first stack whose options do not go together, and why; None if there is none.

    All stacks share one set of flags; a flag that only some stacks can use is ignored for the others.
    """
    for stack, choice in choices.items():
        reason = refusal(choice.without_options_of(choices.values()))
        if reason is not None:
            return stack, reason
    return None


def _option_refusal(choice: DepthChoice) -> str | None:
    """Return what excludes a normalised step and a scheme in middle layers only."""
    rule = choice.rule
    if choice.normalize_step:
        if "steps" not in choice.uses:
            return f"scheme '{choice.scheme}' has no step that could be normalised"
        if choice.function != "increment" or choice.steps != 1 or choice.step_size != 1:
            return "a normalised step is one step of what a layer adds, and its length is that of the normalisation"
        if choice.coefficients == "scalar" and choice.stages == 1:
            return "the normalisation of a step undoes a scalar weight: choose coefficients 'vector' or 'tableau'"
    if not choice.middle_layers:
        return None
    if choice.stages == 1:
        return f"scheme '{choice.scheme}' evaluates all layers once: middle layers go with schemes of several stages"
    if isinstance(rule, Recurrence) and rule.remembers:
        return "the scheme reads earlier layers, which have to be stepped by it too: it goes without middle layers"
    if choice.stage_parameters == "separate":
        return "with middle layers, all layers have the same parts: stage parameters have to be shared"
    return None


def _weights_refusal(choice: DepthChoice, tableau: ButcherTableau) -> str | None:
    reason = coefficients_refusal(choice.coefficients, tableau, choice.gate_sum, choice.gate_start)
    if reason is None and choice.share_coefficients and choice.coefficients not in LEARNED:
        why = f"coefficients '{choice.coefficients}' are not learned, there is nothing to share"
        return f"{why}: pass --no-ode-share-coefficients"
    return reason


def _runge_kutta_refusal(choice: DepthChoice) -> str | None:
    tableau = get_tableau(choice.scheme)
    reason = _weights_refusal(choice, tableau)
    if reason is not None:
        return reason
    if choice.function == "layer-output" and tableau.order == 0:
        return f"scheme '{choice.scheme}' applies the layer itself; 'layer-output' would add y to it once more"
    if choice.function == "layer-output" and (choice.steps > 1 or choice.step_size != 1):
        return "the output of a layer is no rate of change: 'layer-output' goes with one step of size 1"
    if choice.function == "increment" and not choice.normalize_before:
        return "post-norm layers are not y + F(y): use pre-norm (normalize-before) or the function 'layer-output'"
    return None


def _recurrence_refusal(choice: DepthChoice, recurrence: Recurrence) -> str | None:
    if choice.weighed_stages is None:
        options = ("coefficients", "gate_sum", "gate_start", "share_coefficients", "function", "steps", "step_size")
        reason = _refuse_changes(choice, options, "the scheme is an equation in what blocks add, without stage weights")
    else:
        reason = _weights_refusal(choice, choice.weighed_stages) or _refuse_changes(
            choice, ("function", "steps", "step_size"), "the scheme is an equation in what blocks add"
        )
    if reason is not None:
        return reason
    if not choice.normalize_before:
        return "post-norm layers are not y + F(y), and the scheme is made of F: use pre-norm (normalize-before)"
    if (recurrence.remembers or recurrence.each_sublayer) and choice.scope not in ("san+ffn", "san/ffn"):
        return "the scheme has to step all that layers add: its scope is 'san+ffn' or 'san/ffn'"
    if recurrence.remembers and choice.history != "none":
        return (
            "the scheme reads earlier layers itself, which a layer history would replace: pass "
            "--encoder-layer-history none for an encoder, --decoder-layer-history none for a decoder"
        )
    return None


def _residual_refusal(choice: DepthChoice) -> str | None:
    """Return what all schemes but the depth-wise LSTM refuse."""
    if choice.stage_parameters == "separate" and choice.stages < 2:
        return f"separate stage parameters need at least two stages; scheme '{choice.scheme}' has one"
    if choice.lstm != LSTMChoice():
        return f"the parts of a depth-wise LSTM go with scheme '{LSTM}' alone"
    return None


def _lstm_refusal(choice: DepthChoice) -> str | None:
    options = (
        *("coefficients", "gate_sum", "gate_start", "share_coefficients", "function", "scope", "steps"),
        *("step_size", "stage_parameters", "splitting"),
    )
    return _refuse_changes(choice, options, f"scheme '{LSTM}' steps no F and has no feed-forward networks")


def _refuse_changes(choice: DepthChoice, options: Sequence[str], reason: str) -> str | None:
    """Refuse every value of ``options`` but the default."""
    for option in options:
        default = getattr(DepthChoice(), option)
        if getattr(choice, option) != default:
            return f"{reason}: {option.replace('_', ' ')} '{default}' is all it takes"
    return None
