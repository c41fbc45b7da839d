"""Observers see every event once, with the padding that belongs to it, and nobody pays where nobody observes."""

from collections import Counter
from typing import Any

import pytest
import torch
from models_for_tests import PAD, batch, small_model, teacher_forced

from ode_transformer.nn import LayerId, LayerObserver, SubLayerKind, observing

SOURCE, PREVIOUS = batch([6, 3, 4]), teacher_forced(batch([5, 7, 2], seed=1))
GATE = {"encoder_ode_scheme": "rk2", "ode_coefficients": "gate"}


class Recorder(LayerObserver):
    """Counts events and checks the padding that comes with them."""

    def __init__(self) -> None:
        self.events: Counter[Any] = Counter()

    def record(self, event: str, stack: str, padding: torch.Tensor) -> None:
        assert torch.equal(padding, (SOURCE if stack == "encoder" else PREVIOUS).eq(PAD))
        self.events[event, stack] += 1

    def attention_kinds(self, layer: LayerId) -> tuple[SubLayerKind, ...]:
        return (SubLayerKind.SELF_ATTENTION,) if layer == ("encoder", 2) else ()

    def see_layer(self, layer, inputs, outputs, padding) -> None:
        self.record("layer", layer.stack, padding)

    def see_step(self, block, field, y, next_y, padding) -> None:
        self.record("step", block.stack, padding)

    def see_stage_weights(self, block, weights, padding) -> None:
        self.record("weights", block.stack, padding)
        torch.testing.assert_close(sum(weights), torch.ones_like(weights[0]))

    def see_attention_weights(self, layer, kind, weights) -> None:
        assert (layer, kind) == (("encoder", 2), SubLayerKind.SELF_ATTENTION)
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
        self.events["attention", "encoder"] += 1


@pytest.mark.parametrize("training", [False, True])
def test_every_event_is_reported(training: bool) -> None:
    """Under activation checkpointing, too, which repeats the steps in the backward pass."""
    model, recorder = small_model(checkpoint_activations=True, **GATE).train(training), Recorder()
    with observing(model, recorder):
        model(SOURCE, None, PREVIOUS)[0].sum().backward()
        recorder.events.pop(("attention", "encoder"))  # one for each evaluation, also for those that are repeated
    assert recorder.events == {
        **{("layer", stack): 2 for stack in ("encoder", "decoder")},
        **{("step", stack): 2 for stack in ("encoder", "decoder")},
        ("weights", "encoder"): 2,
    }


def test_what_is_observed_does_not_change() -> None:
    model = small_model(**GATE)
    expected = model(SOURCE, None, PREVIOUS)[0]
    with observing(model, Recorder(), Recorder()):
        torch.testing.assert_close(model(SOURCE, None, PREVIOUS)[0], expected)
    assert model.encoder.observers == model.decoder.observers == []
