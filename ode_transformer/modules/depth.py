"""Moves a representation through a stack of fairseq-configured layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import count
from typing import Any

from fairseq.models.transformer import TransformerConfig
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ode_transformer.nn import DepthChoice, Layer
from ode_transformer.numerics import DepthScheme, DepthState, get_tableau

# What the sub-layers of layer l need at its e-th evaluation: (l, e) -> name of sub-layer -> keyword arguments.
Inputs = Callable[[int, int], Mapping[str, Mapping[str, Any]]]


def depth_choice(cfg: TransformerConfig, stack: str) -> DepthChoice:
    """What the options say about one stack, 'encoder' or 'decoder'.

    Coefficients belong to schemes of several stages: a stack that has one stage takes its tableau's only weight.
    """
    options = getattr(cfg, stack)
    several = get_tableau(options.ode_scheme).stages > 1
    return DepthChoice(
        scheme=options.ode_scheme,
        coefficients=cfg.ode_coefficients if several else "tableau",
        share_coefficients=cfg.ode_share_coefficients,
        history=options.layer_history,
        normalize_before=options.normalize_before,
        layerdrop=options.layerdrop or 0.0,
    )


def through_depth(
    scheme: DepthScheme, layers: Iterable[Layer], y0: Tensor, inputs: Inputs, recompute: bool = False
) -> tuple[Tensor, list[Tensor]]:
    """Steps ``y0`` through all layers.

    :param y0: [B, T, C]
    :param inputs: asked once for each evaluation of a layer, so that every stage can have a cache of its own
    :param recompute: keep only what passes between layers and compute each step again in the backward pass
    :returns: y_L, and what each layer and the end read: y_0, y_1, … [B, T, C] each
    """

    def step(index: int, layer: Layer, depth_state: DepthState) -> DepthState:
        evaluation = count()
        return scheme.step(lambda y: layer(y, inputs(index, next(evaluation))), depth_state)

    depth_state = scheme.start(y0)
    passed = [depth_state.y]
    for index, layer in enumerate(layers):
        one_step = partial(checkpoint, step, use_reentrant=False) if recompute else step
        depth_state = one_step(index, layer, depth_state)
        passed.append(depth_state.y)
    return scheme.finish(depth_state), passed
