"""Observers of a stack of layers: they see layers, steps, stage weights and attention weights, and change nothing.

An observer is a subclass of :class:`LayerObserver` that overrides the events that it needs:

    with observing(model, observer):
        model(**net_input)

Where nobody observes, a forward pass costs nothing more, and events that no observer overrides are not reported.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ode_transformer.nn.layer import LayerContext
from ode_transformer.nn.sublayers import SubLayerKind
from ode_transformer.numerics import VectorField, Weight

STACKS = ("encoder", "decoder")


class LayerId(NamedTuple):
    """A layer of a model, numbered from 1 on in its stack."""

    stack: str
    number: int

    def __str__(self) -> str:
        return f"{self.stack} layer {self.number}"


class BlockId(NamedTuple):
    """A stepped block of a model: a layer, or some of its sub-layers.

    :param sublayers: such as ``ffn`` or ``self_attn+ffn``; empty where the layer is one block
    """

    stack: str
    number: int
    sublayers: str = ""

    def __str__(self) -> str:
        return f"{self.stack} layer {self.number} {self.sublayers}".rstrip()


class LayerObserver:
    """Base class of observers; every event does nothing unless a subclass overrides it.

    Tensors are those of the forward pass, with their graph. What happens within a step is reported in
    ``torch.no_grad``, because activation checkpointing counts the tensors that are saved there. ``padding`` is True at
    padding, [B, T], or [B, S, T] in a stack over a grid; None if the stack was not told.
    """

    #: The observer has to see all rows of a batch at once, so that a Reformer must not divide the batch.
    whole_batch = True

    @property
    def active(self) -> bool:
        """False if the observer sees nothing of the forward pass that begins."""
        return True

    def attention_kinds(self, layer: LayerId) -> Collection[SubLayerKind]:
        """Return the attentions of a layer whose weights are reported; they cost an explicit softmax."""
        return ()

    def see_layer(
        self, layer: LayerId, inputs: Sequence[Tensor], outputs: Sequence[Tensor], padding: Tensor | None
    ) -> None:
        """A layer has been evaluated; see :meth:`DepthScheme.layer_inputs` and :meth:`DepthScheme.layer_outputs`."""

    def see_step(self, block: BlockId, field: VectorField, y: Tensor, next_y: Tensor, padding: Tensor | None) -> None:
        """A Runge–Kutta scheme has stepped a block from ``y`` to ``next_y``; ``field`` is the block's F."""

    def see_stage_weights(self, block: BlockId, weights: Sequence[Weight], padding: Tensor | None) -> None:
        """A step has weighed its stages by γ_1 … γ_s: numbers, or tensors [B, T, 1] or [].

        Weights with a number for each channel are reported by their means.
        """

    def see_attention_weights(self, layer: LayerId, kind: SubLayerKind, weights: Tensor) -> None:
        """An attention has been evaluated with these weights, [B, H, T, S]; each stage evaluates it once."""

    def see_log_probabilities(self, log_probabilities: Tensor) -> None:
        """The criterion reads these logarithms of the decoder's probabilities, [B, T, words]."""


class StackEvents:
    """Reports the events of one forward pass through a stack to its observers."""

    def __init__(
        self, observers: Sequence[LayerObserver], stack: str, blocks: Sequence[BlockId], padding: Tensor | None
    ) -> None:
        self.stack, self.blocks, self.padding = stack, blocks, padding
        self.layer_observers = _overriding("see_layer", observers)
        self.step_observers = _overriding("see_step", observers)
        self.weight_observers = _overriding("see_stage_weights", observers)
        self.attention_observers = _overriding("see_attention_weights", observers)

    @property
    def sees_steps(self) -> bool:
        """True if an observer sees what happens within a step."""
        return bool(self.step_observers or self.weight_observers)

    def report_layer(self, index: int, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        """Report layer number ``index``, counted from 0."""
        for observer in self.layer_observers:
            observer.see_layer(LayerId(self.stack, index + 1), inputs, outputs, self.padding)

    @torch.no_grad()
    def report_step(self, block: int, field: VectorField, y: Tensor, next_y: Tensor) -> None:
        """Report a step over block number ``block``, counted from 0."""
        for observer in self.step_observers:
            observer.see_step(self.blocks[block], field, y, next_y, self.padding)

    @torch.no_grad()
    def report_stage_weights(self, block: int, weights: Sequence[Weight]) -> None:
        """Report the weights of a step over block number ``block``, counted from 0."""
        weights = [w.mean() if isinstance(w, Tensor) and w.dim() == 1 else w for w in weights]
        for observer in self.weight_observers:
            observer.see_stage_weights(self.blocks[block], weights, self.padding)

    def observed_context(self, index: int, context: LayerContext) -> LayerContext:
        """Return the context of layer number ``index`` in which the attentions that are observed report weights."""
        layer, observed = LayerId(self.stack, index + 1), dict(context)
        for kind, attention in context.items():
            observers = [o for o in self.attention_observers if kind in o.attention_kinds(layer)]
            if observers:
                observed[kind] = replace(attention, report_weights=partial(_report_attention, observers, layer, kind))
        return observed


@torch.no_grad()
def _report_attention(observers: Sequence[LayerObserver], layer: LayerId, kind: SubLayerKind, weights: Tensor) -> None:
    for observer in observers:
        observer.see_attention_weights(layer, kind, weights)


def _overriding(event: str, observers: Sequence[LayerObserver]) -> list[LayerObserver]:
    base = getattr(LayerObserver, event)
    return [observer for observer in observers if getattr(type(observer), event) is not base]


class LastAttentionWeights(LayerObserver):
    """Keeps the attention weights of one layer's last evaluation, that of a step's last stage."""

    def __init__(self, layer: LayerId, *kinds: SubLayerKind) -> None:
        self.layer, self.kinds = layer, kinds
        self.weights: dict[SubLayerKind, Tensor] = {}

    def attention_kinds(self, layer: LayerId) -> Collection[SubLayerKind]:
        return self.kinds if layer == self.layer else ()

    def see_attention_weights(self, layer: LayerId, kind: SubLayerKind, weights: Tensor) -> None:
        self.weights[kind] = weights


def observable_stacks(model: Any) -> dict[str, Any]:
    """Return the stacks of a model that can be observed by name: a language model's decoder, none of fairseq's own."""
    stacks = {name: getattr(model, name, None) for name in STACKS}
    return {name: stack for name, stack in stacks.items() if hasattr(stack, "observers")}


@contextmanager
def observing(model: Any, *observers: LayerObserver) -> Iterator[None]:
    """Let observers see all stacks of a model within the ``with`` block."""
    stacks = observable_stacks(model).values()
    for stack in stacks:
        stack.observers.extend(observers)
    try:
        yield
    finally:
        for stack in stacks:
            for observer in observers:
                stack.observers.remove(observer)
