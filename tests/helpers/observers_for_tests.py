"""Observers that keep what they see."""

from collections.abc import Collection, Sequence

from torch import Tensor

from ode_transformer.nn import LayerId, LayerObserver, SubLayerKind


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


class AttentionRecord(LayerObserver):
    """The attention weights of one attention, evaluation by evaluation."""

    def __init__(self, layer: LayerId, kind: SubLayerKind) -> None:
        self.layer, self.kind = layer, kind
        self.weights: list[Tensor] = []

    def attention_kinds(self, layer: LayerId) -> Collection[SubLayerKind]:
        return (self.kind,) if layer == self.layer else ()

    def see_attention_weights(self, layer: LayerId, kind: SubLayerKind, weights: Tensor) -> None:
        if layer == self.layer:
            self.weights.append(weights)
