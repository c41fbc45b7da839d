"""A stand-in for CUDA graphs: it computes a recorded step again, into the same tensors.

As ``--user-dir`` of fairseq-train it lets trainings on a CPU run by ``--cuda-graphs``, with flat parameters.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from ode_transformer.models import ode_transformer as models  # registers what --user-dir offers, too
from ode_transformer.speed import flat, recording
from ode_transformer.speed.recording import Compute


class RecomputedStep:
    """A step that is computed again from its static inputs at every replay."""

    size = 1  # byte

    def __init__(self, compute: Compute, keep_gradients: Callable[[], None]) -> None:
        self.compute, self.keep_gradients = compute, keep_gradients
        self.loss, self.results = self.compute_again()
        self.loss = self.loss.detach().clone()

    def compute_again(self) -> tuple[Tensor, dict[str, Tensor]]:
        with recording.recording():
            return self.compute()

    def forward(self) -> None:
        self.computed, results = self.compute_again()
        self.loss.copy_(self.computed.detach())
        for name, x in results.items():
            self.results[name].copy_(x)

    def backward(self, gradient: Tensor) -> None:
        self.computed.backward(gradient)
        self.keep_gradients()


class RecomputingRecorder:
    def warm_up(self, compute: Callable[[], None]) -> None:
        state = torch.get_rng_state()
        compute()
        torch.set_rng_state(state)

    def record(self, compute: Compute, keep_gradients: Callable[[], None]) -> RecomputedStep:
        state = torch.get_rng_state()
        step = RecomputedStep(compute, keep_gradients)
        torch.set_rng_state(state)
        return step

    def record_inference(self, compute: Callable[[], None]) -> Callable[[], None]:
        return compute

    def free_bytes(self) -> int:
        return 1000


def stand_in(put: Callable[[object, str, object], None]) -> None:
    """Put the stand-in in the place of graphs, with what a CPU lacks besides, by a function like ``setattr``."""
    put(recording, "build_recorder", lambda _: RecomputingRecorder())
    put(flat, "suits", lambda device: True)
    put(models, "check_task", lambda *_: None)  # half precision, which a CPU is refused
    put(torch.Tensor, "cuda", lambda x, *_, **__: x)  # to which fairseq's trainer moves a norm that overflowed


if Path(sys.argv[0]).name == "fairseq-train":  # not within pytest, whose other tests run without it
    stand_in(setattr)
