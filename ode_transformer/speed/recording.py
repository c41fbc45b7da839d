"""A forward and a backward pass recorded as two CUDA graphs, which replay both without Python."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor

from ode_transformer.nn.recording import recording

# Computes the loss and the other results of a step from static inputs.
Compute = Callable[[], tuple[Tensor, dict[str, Tensor]]]

_LEAST_FREE = 0.1  # of all memory


class CUDARecorder:
    """Records steps that are replayed one after the other, each backward pass right after its forward pass.

    It records on a stream of its own into memory that all recordings share.
    """

    def __init__(self) -> None:
        self.stream, self.pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()
        # Other threads, such as the loader's or a server's, may use CUDA meanwhile.
        self.settings: Any = {"pool": self.pool, "stream": self.stream, "capture_error_mode": "thread_local"}

    def warm_up(self, compute: Callable[[], None]) -> None:
        """Compute something, so that PyTorch sets up its libraries, which a recording cannot do.

        Random numbers stay as they were.
        """
        state = torch.cuda.get_rng_state()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            compute()
        torch.cuda.current_stream().wait_stream(self.stream)
        torch.cuda.set_rng_state(state)

    def record(self, compute: Compute, keep_gradients: Callable[[], None]) -> "CUDARecording":
        """Record a step whose shape has been computed before, and leave the random numbers as they were.

        :param keep_gradients: moves the gradients elsewhere, at the end of the recorded backward pass
        :raises RuntimeError: memory ended, or the step does what cannot be recorded
        """
        free, total = torch.cuda.mem_get_info()
        if free < _LEAST_FREE * total:
            torch.cuda.empty_cache()  # a recording cannot take the memory that PyTorch keeps for later tensors
        reserved, state = torch.cuda.memory_reserved(), torch.cuda.get_rng_state()
        try:
            with self._repair():
                recording = CUDARecording(compute, keep_gradients, **self.settings)
        finally:
            torch.cuda.set_rng_state(state)
        recording.size = max(0, torch.cuda.memory_reserved() - reserved)
        return recording

    def record_inference(self, compute: Callable[[], None]) -> Callable[[], None]:
        """Record what a function does with tensors that stay; return a function that does it again.

        :raises RuntimeError: it cannot be recorded
        """
        graph = torch.cuda.CUDAGraph()
        with self._repair(), recording(), torch.cuda.graph(graph, **self.settings):
            compute()
        return graph.replay

    @contextmanager
    def _repair(self) -> Iterator[None]:
        """Undo what PyTorch leaves of a recording that CUDA refuses.

        Its stream is current, its pool hands out memory, which keeps PyTorch from freeing any, and the generator of
        random numbers believes it is still being recorded.
        """
        current = torch.cuda.current_stream()
        try:
            yield
        except RuntimeError:
            torch.cuda.set_stream(current)
            with suppress(RuntimeError):  # of a recording that ended before it failed
                torch._C._cuda_endAllocateToPool(current.device_index, self.pool)
            generator = torch.cuda.default_generators[current.device_index]
            generator.graphsafe_set_state(torch.Generator(generator.device).graphsafe_get_state())
            raise

    def free_bytes(self) -> int:
        """Return the memory that is free, or that PyTorch keeps for later tensors."""
        return torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()


class CUDARecording:
    """Two CUDA graphs: of the forward pass, with static ``loss`` and ``results``, and of the backward pass.

    :param settings: those of :class:`torch.cuda.graph`
    """

    size = 0  # memory that the recording takes, in bytes

    def __init__(self, compute: Compute, keep_gradients: Callable[[], None], **settings: Any) -> None:
        self._forward, self._backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with recording():
            with torch.cuda.graph(self._forward, **settings):
                loss, self.results = compute()
            self.gradient = torch.ones_like(loss)
            with torch.cuda.graph(self._backward, **settings):
                loss.backward(self.gradient)
                keep_gradients()
        self.loss = loss.detach()

    def forward(self) -> None:
        """Compute the static results anew from the static inputs."""
        self._forward.replay()

    def backward(self, gradient: Tensor) -> None:
        """Compute the gradients, and keep them as when the step was recorded."""
        self.gradient.copy_(gradient)
        self._backward.replay()


def build_recorder(device: torch.device) -> CUDARecorder | None:
    """Build a recorder of what a device computes; None for a device without CUDA graphs."""
    return CUDARecorder() if device.type == "cuda" else None
