"""Attention weights of each layer and head on one sentence pair, of a decoder or encoder of this package."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ode_transformer.nn.observers import LastAttentionWeights, LayerId, observable_stacks, observing
from ode_transformer.nn.sublayers import SubLayerKind

_KINDS = (SubLayerKind.SELF_ATTENTION, SubLayerKind.CROSS_ATTENTION)


@torch.no_grad()
def attention_by_head(model: Any, sample: dict[str, Any]) -> dict[tuple[LayerId, SubLayerKind], Tensor]:
    """Return the weights of each attention in its last evaluation, that of a step's last stage, [H, T, S] each.

    :param model: in evaluation mode
    :param sample: fairseq's batch of a single sentence pair, so that nothing is padding
    """
    stacks = observable_stacks(model).items()
    layers = [LayerId(name, number) for name, stack in stacks for number in range(1, len(stack.layers) + 1)]
    observers = [LastAttentionWeights(layer, *_KINDS) for layer in layers]
    with observing(model, *observers):
        model(**sample["net_input"])
    return {
        (observer.layer, kind): weights[0].float().cpu()
        for observer in observers
        for kind, weights in observer.weights.items()
    }
