"""Training steps that are recorded when their shape comes the second time, and replayed from then on.

A batch is padded to a shape of :mod:`ode_transformer.speed.shapes`. A replay computes the loss; the backward pass of
this loss replays the gradients, into static tensors that are the ``grad`` of the parameters.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules import module as torch_module

from ode_transformer.nn import Stack
from ode_transformer.speed import attention, kernels, recording, sublayers
from ode_transformer.speed.flat import FlatTensor
from ode_transformer.speed.shapes import length_edges, round_up_count, round_up_length

logger = logging.getLogger(__name__)

MEMORY_SHARE = 0.5  # of the memory that is free before the first recording; all recordings together take no more
KNOWN_INPUTS = {"src_tokens", "src_lengths", "prev_output_tokens"}
COUNTS = ("batches", "replays", "symbols", "padded_symbols", "seconds")
UNRECORDED_BATCH = {f"graph_{name}": int(name == "batches") for name in COUNTS}  # what is logged of it

# Tensors of a batch by name: numbers [B] and symbols [B, T].
Inputs = dict[str, Tensor]
# Computes the loss and other results from the inputs of a batch.
Step = Callable[[Inputs], tuple[Tensor, dict[str, Tensor]]]
# A module, the name of one of its methods, and a function in its place.
Method = tuple[nn.Module, str, Callable[..., Any]]


def record_training(model: nn.Module, padding: int, lengths: np.ndarray) -> "RecordedTraining":
    """Return the recordings of a training, which begin empty.

    :param model: model whose parameters keep their place in memory
    :param padding: number of the padding symbol
    :param lengths: lengths of the sentences of the training data, in tokens; may be empty
    :raises ValueError: no step of the training can be recorded; its text goes on after "this training runs unrecorded:"
    """
    device = next(model.parameters()).device
    recorder = recording.build_recorder(device)
    if recorder is None:
        raise ValueError("it needs a GPU")
    if torch.is_autocast_enabled(device.type):
        raise ValueError("--amp chooses precisions while a step runs; --fp16 and --bf16 are recorded")
    if hasattr(model, "module") and not hasattr(model, "all_reduce_grads"):
        raise ValueError("of the --ddp-backend values, only legacy_ddp reduces gradients after the backward pass")
    return RecordedTraining(model, recorder, padding, length_edges(lengths))


class RecordedTraining:
    """The recordings of a training, from :func:`record_training`.

    :param edges: lengths to which batches are padded
    """

    def __init__(self, model: nn.Module, recorder: recording.CUDARecorder, padding: int, edges: list[int]) -> None:
        self.model, self.padding, self.edges = model, padding, edges
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.gradients = FlatTensor(self.parameters)  # static; an optimizer finds that they are one tensor
        self.anchor = torch.zeros((), device=self.gradients.whole.device, requires_grad=True)
        self.forward_passes = 0  # replayed ones
        self.trained: list[int] = []  # numbers of the parameters that have a gradient
        self.hooks = list(_hooks(model))
        self.uses: Counter[Any] = Counter()  # of each shape
        self.steps: dict[Any, _RecordedStep] = {}
        self.recorder: recording.CUDARecorder | None = recorder
        self.memory = MEMORY_SHARE * recorder.free_bytes()
        self.faster = list(faster_methods(model, self.anchor.device))

    def recordable(self, net_input: Mapping[str, Tensor]) -> bool:
        """Tell whether a batch is one of training, has no input beyond the known ones, and is seen by no hook."""
        hooks = (hook for hooks in filter(None, self.hooks) for hook in hooks.values())
        hooked = any(not getattr(hook, "only_in_evaluation", False) for hook in hooks)
        return self.model.training and torch.is_grad_enabled() and net_input.keys() <= KNOWN_INPUTS and not hooked

    def padded_shapes(self, inputs: Inputs) -> dict[str, list[int]]:
        """Return the shape to which each input is padded."""
        return padded_shapes(inputs, self.edges)

    def compute(self, step: Step, inputs: Inputs) -> tuple[Tensor, dict[str, Any]]:
        """Compute a padded batch, by a replay if its shape has come before; return loss, other results, shares."""
        shapes = self.padded_shapes(inputs)
        shape, seconds = tuple(map(tuple, shapes.values())), 0.0
        self.uses[shape] += 1
        if shape not in self.steps:
            padded = {name: x.new_empty(shapes[name]) for name, x in inputs.items()}
            self._write(inputs, padded)
            if self.uses[shape] > 1:
                begin = time.perf_counter()
                with replaced(self.faster):
                    self._record(step, padded, shape)
                seconds = time.perf_counter() - begin
        recorded = self.steps.get(shape)
        if recorded is None:
            with replaced(self.faster):
                loss, results = step(padded)
        else:
            self._write(inputs, recorded.inputs)
            loss, results = recorded.replay()
        texts = [name for name, x in inputs.items() if x.dim() > 1]
        symbols = sum(inputs[name].numel() for name in texts)
        padded_symbols = sum(prod(shapes[name]) for name in texts)
        counts = (1, int(recorded is not None), symbols, padded_symbols, seconds)
        return loss, results | dict(zip(UNRECORDED_BATCH, counts, strict=True))

    def _write(self, inputs: Inputs, padded: Inputs) -> None:
        """Write inputs into larger tensors: the rest of [B, T] is padding, the rest of [B] is zero."""
        for name, x in inputs.items():
            if x.shape != padded[name].shape:
                padded[name].fill_(self.padding if x.dim() > 1 else 0)
            padded[name][tuple(map(slice, x.shape))] = x

    def _record(self, step: Step, inputs: Inputs, shape: Any) -> None:
        """Record a shape if there is room for it beside the shapes that have come more often."""
        if self.recorder is None or not self._make_room(self.uses[shape]):
            return
        gradients_before = [parameter.grad for parameter in self.parameters]
        for parameter in self.parameters:
            parameter.grad = None
        try:
            if not self.trained:
                self.recorder.warm_up(lambda: step(inputs)[0].backward())
                self.trained = [n for n, parameter in enumerate(self.parameters) if parameter.grad is not None]
                for parameter in self.parameters:
                    parameter.grad = None
            self.steps[shape] = _RecordedStep(self, self.recorder, step, inputs)
        except RuntimeError as error:
            self.steps.clear()
            self.recorder = None
            logger.warning(f"--cuda-graphs: the training goes on unrecorded, because recording failed: {error}")
        finally:
            for parameter, gradient in zip(self.parameters, gradients_before, strict=True):
                parameter.grad = gradient

    def trained_parameters(self) -> tuple[list[Tensor], list[Tensor]]:
        """Return the parameters that have a gradient, and their static gradients."""
        return [self.parameters[n] for n in self.trained], [self.gradients.parts[n] for n in self.trained]

    def keep_gradients(self) -> None:
        """Add the gradients that a backward pass has made anew to the static ones, all at once."""
        parameters, static = self.trained_parameters()
        gradients: list[Any] = [parameter.grad for parameter in parameters]
        torch._foreach_add_(static, gradients)
        for parameter in parameters:
            parameter.grad = None

    def _make_room(self, uses: int) -> bool:
        """Drop the steps that are used least while all take too much memory; return False at one used more often."""
        while sum(step.recording.size for step in self.steps.values()) > self.memory:
            least = min(self.steps, key=self.uses.__getitem__)
            if self.uses[least] > uses:
                return False
            del self.steps[least]
        return True


def faster_methods(model: nn.Module, device: torch.device) -> Iterator[Method]:
    """Yield what a device computes faster than the methods of the model's modules: once for all shapes."""
    stacks = [module for module in model.modules() if isinstance(module, Stack) and not module.recompute]
    for stack in stacks:
        if kernels.is_used("compile", device):
            yield stack, "step_layers", torch.compile(stack.step_layers, dynamic=True, fullgraph=True)
            continue
        for name, room in (("sublayers", sublayers), ("attention", attention)):
            if kernels.is_used(name, device):
                yield from (method for layer in stack.layers for method in room.faster_methods(layer))


@contextmanager
def replaced(methods: Sequence[Method]) -> Iterator[None]:
    """Replace methods within the ``with`` block."""
    for module, name, function in methods:
        setattr(module, name, function)
    try:
        yield
    finally:
        for module, name, _ in methods:
            delattr(module, name)


def padded_shapes(inputs: Inputs, edges: list[int]) -> dict[str, list[int]]:
    """Return the shape to which each input is padded, lengths to ``edges``."""
    return {
        name: [round_up_count(len(x)), *(round_up_length(size, edges) for size in x.shape[1:])]
        for name, x in inputs.items()
    }


class _RecordedStep:
    """A recorded step and its static inputs."""

    def __init__(
        self, training: RecordedTraining, recorder: recording.CUDARecorder, step: Step, inputs: Inputs
    ) -> None:
        self.training, self.inputs = training, inputs
        self.recording = recorder.record(lambda: step(inputs), training.keep_gradients)

    def replay(self) -> tuple[Tensor, dict[str, Tensor]]:
        """Replay the forward pass; return copies, because an update may hold several batches of this shape."""
        self.training.forward_passes += 1
        self.recording.forward()
        loss: Tensor = _ReplayedLoss.apply(self.training.anchor, self)
        return loss, {name: x.clone() for name, x in self.recording.results.items()}

    def replay_backward(self, gradient: Tensor) -> None:
        """Replay the backward pass; optimizers may have replaced the static gradients, or removed them."""
        parameters, static = self.training.trained_parameters()
        empty = all(parameter.grad is None for parameter in self.training.parameters)
        if empty:
            self.training.gradients.whole.zero_()
        for parameter, flat_gradient in zip(parameters, static, strict=True):
            if parameter.grad is None and not empty:
                flat_gradient.zero_()
            elif parameter.grad is not None and parameter.grad is not flat_gradient:
                flat_gradient.copy_(parameter.grad)
            parameter.grad = None
        self.recording.backward(gradient)
        for parameter, flat_gradient in zip(parameters, static, strict=True):
            parameter.grad = flat_gradient


class _ReplayedLoss(torch.autograd.Function):
    """Loss of a replayed forward pass; its backward pass replays the gradients of the parameters."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, step: _RecordedStep) -> Tensor:
        ctx.step, ctx.number = step, step.training.forward_passes
        return step.recording.loss.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None]:
        if ctx.number != ctx.step.training.forward_passes:  # all recordings share their memory
            raise RuntimeError(
                "--cuda-graphs: a later batch has replaced what this backward pass reads; "
                "call backward before the next forward pass"
            )
        ctx.step.replay_backward(gradient)
        return None, None


def _hooks(model: nn.Module) -> Iterator[Mapping[int, Any]]:
    """Yield the hooks that would see a forward or backward pass, as PyTorch keeps them."""
    for owner, prefix in (*((module, "") for module in model.modules()), (torch_module, "_global")):
        for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
            yield getattr(owner, prefix + name)
