"""Observers that keep what they see."""

from collections.abc import Sequence

from torch import Tensor

from ode_transformer.nn import LayerId, LayerObserver


class FirstInputs(LayerObserver):
    """The first tensor that each layer of a stack reads."""

    def __init__(self, stack: str) -> None:
        self.stack = stack
        self.tensors: list[Tensor] = []

    def see_layer(
        self, layer: LayerId, inputs: Sequence[Tensor], outputs: Sequence[Tensor], padding: Tensor | None
    ) -> None:
        if layer.stack == self.stack:
            self.tensors.append(inputs[0])
