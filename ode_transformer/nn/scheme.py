"""Builds the depth scheme of a stack from its options."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from ode_transformer.nn.compatibility import StackShape, refusal
from ode_transformer.nn.context import SubLayerKind
from ode_transformer.nn.depth_choice import DepthChoice
from ode_transformer.nn.depth_wise_lstm import DepthWiseLSTM, HiddenSizes
from ode_transformer.nn.layer_history import LayerHistory
from ode_transformer.numerics import Recurrence, RungeKutta, Scheme, build_coefficients, get_tableau


def build_scheme(
    choice: DepthChoice, layers: int, kinds: Mapping[str, SubLayerKind], dim: int, sizes: HiddenSizes | None = None
) -> Scheme | LayerHistory:
    """Build the scheme of a stack, within its layer history if it has one.

    :param sizes: sizes of the hidden computation of a depth-wise LSTM
    :raises ValueError: the choice does not go with the stack
    """
    attentions = sum(kind is not SubLayerKind.FEED_FORWARD for kind in kinds.values())
    reason = refusal(choice, StackShape(layers, attentions))
    if reason is not None:
        raise ValueError(reason)
    blocks_of_layer = sum(stepped for _, stepped in choice.grouping(kinds))
    blocks = blocks_of_layer * len(choice.stepped_layers(layers))
    sets = 1 if choice.share_coefficients or not choice.has_learned_weights else blocks
    stages = choice.weighed_stages
    coefficients = []
    if stages is not None:
        options_of_gate = choice.gate_sum, choice.gate_start
        coefficients = [build_coefficients(choice.coefficients, stages, dim, *options_of_gate) for _ in range(sets)]
    scheme: Scheme
    if choice.is_lstm:
        scheme = DepthWiseLSTM(choice.lstm, layers, blocks_of_layer, dim, sizes or HiddenSizes())
    elif isinstance(choice.rule, Recurrence):
        options: dict[str, Any] = {"coefficients": coefficients} if coefficients else {}
        if choice.normalize_step:
            options["normalize_step"] = True
        scheme = choice.rule.build(blocks, dim, **options)
    else:
        norms = [nn.LayerNorm(dim) for _ in range(blocks)] if choice.normalize_step else []
        scheme = RungeKutta(get_tableau(choice.scheme), coefficients, choice.steps, choice.step_size, norms)
    if choice.history == "none":
        return scheme
    return LayerHistory(scheme, layers, dim, choice.history == "dlcl", choice.normalize_before)
