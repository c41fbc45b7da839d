"""Norms of activations: the mean length of what each layer returns, ‖y_l‖₂ over positions that are not padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ode_transformer.nn.observers import LayerId, LayerObserver, observable_stacks, observing


class _OutputsObserver(LayerObserver):
    """Sums the norms of each layer's outputs over positions, and counts these."""

    def __init__(self) -> None:
        self.sums: dict[LayerId, float] = {}
        self.positions: dict[LayerId, int] = {}

    def see_layer(
        self, layer: LayerId, inputs: Sequence[Tensor], outputs: Sequence[Tensor], padding: Tensor | None
    ) -> None:
        norms = torch.stack([output.float().square().sum(dim=-1) for output in outputs]).sum(dim=0).sqrt()
        real = torch.ones_like(norms, dtype=torch.bool) if padding is None else padding.logical_not()
        self.sums[layer] = self.sums.get(layer, 0.0) + float(norms[real].sum())
        self.positions[layer] = self.positions.get(layer, 0) + int(real.sum())


@torch.no_grad()
def activation_norms(model: Any, samples: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Return the mean norm of each layer's outputs, stack by stack.

    :param model: a model of this package in evaluation mode
    :param samples: fairseq's batches
    """
    observer = _OutputsObserver()
    with observing(model, observer):
        for sample in samples:
            model(**sample["net_input"])
    means = {layer: observer.sums[layer] / observer.positions[layer] for layer in observer.sums}
    return {
        stack: [mean for layer, mean in sorted(means.items()) if layer.stack == stack]
        for stack in observable_stacks(model)
    }
