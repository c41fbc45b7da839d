"""What happens at each layer while a model is trained, among the numbers that fairseq logs (``--log-depth-interval``).

    depth/encoder/1/gradient_norm        ‖∂L/∂x_1‖₂, x_l all that layer l reads (``DepthScheme.layer_inputs``)
    depth/encoder/1/weight_2             γ_2, the weight of the second stage: mean over positions that are not padding
    depth/encoder/1/ffn/weight_2         the same where sub-layers are stepped one by one

Both are of a batch of the first process, the norm with its dropout; L is the training loss per token. A criterion sums
over tokens, and half precision scales the sum, by factors c that no model is told. But ∂L/∂log p sums to −1 over the
batch, with label smoothing too, so that c is known in the backward pass:

    ‖∂L/∂x_l‖₂ = ‖∂(cL)/∂x_l‖₂ / −Σ ∂(cL)/∂ log p
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, Protocol

import torch
from fairseq.logging import metrics
from torch import Tensor, nn

from ode_transformer.nn import DepthChoice
from ode_transformer.numerics import DepthScheme, RungeKutta, Weight

PREFIX = "depth/"
_LAST = 2000  # in the order of a report's numbers


class Stack(Protocol):
    """What is known of a stack here.

    :param stack: encoder or decoder
    :param stepped: the blocks that the scheme steps, in their order: number of the layer, part of it
    """

    stack: str
    choice: DepthChoice
    scheme: DepthScheme

    @property
    def stepped(self) -> list[tuple[int, tuple[str, ...]]]: ...


@contextmanager
def weights_watched(stack: Stack, see: Callable[[int, Sequence[Weight]], None]) -> Iterator[None]:
    """Within the block, ``see`` is told which stepped block of the stack weighs its stages, and by which γ_1 … γ_s.

    It is told nothing where a step has one stage.
    """
    schemes = [s for s in stack.scheme.modules() if isinstance(s, RungeKutta) and s.tableau.stages > 1]
    calls = count()

    def hook(_: nn.Module, inputs: tuple[Any, ...], weights: Sequence[Weight]) -> None:
        see(next(calls) // schemes[0].steps % len(stack.stepped), weights)  # in turn, also where all share one set

    handles = [coefficients.register_forward_hook(hook) for s in schemes for coefficients in s.coefficients]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@dataclass
class _Batch:
    """What one batch has told so far.

    :param squares: name of a layer -> ‖∂(cL)/∂x‖² of each part of x_l
    :param weights: name of a block -> sums of its weights over positions, and how many, [s + 1] each
    :param waiting: how many gradients are to come
    :param factor: c
    """

    squares: dict[str, list[Tensor]] = field(default_factory=lambda: defaultdict(list))
    weights: dict[str, list[Tensor]] = field(default_factory=lambda: defaultdict(list))
    waiting: int = 0
    factor: Tensor | None = None

    def came(self, name: str, gradient: Tensor) -> None:
        dtype = torch.promote_types(gradient.dtype, torch.float32)
        self.squares[name].append(torch.linalg.vector_norm(gradient, dtype=dtype).square())
        self.waiting -= 1
        if not self.waiting:
            self.log()

    def log(self) -> None:
        """Hands everything to fairseq, by one transfer from the device. Loss scales that overflow leave no number."""
        if self.factor is None:
            return
        norms = {name: torch.stack(squares).sum().sqrt() / self.factor for name, squares in self.squares.items()}
        values = {f"{name}/gradient_norm": norm for name, norm in norms.items()}
        for name, sums in self.weights.items():
            *means, positions = torch.stack(sums).sum(dim=0)
            values |= {f"{name}/weight_{stage}": mean / positions for stage, mean in enumerate(means, 1)}
        for name, value in zip(values, torch.stack([v.double() for v in values.values()]).tolist(), strict=True):
            if math.isfinite(value):
                metrics.log_scalar(PREFIX + name, value, priority=_LAST)


class DepthLog(nn.Module):
    """Follows one batch through the stacks of a model, from ``set_num_updates`` to the end of its backward pass.

    :param interval: the updates whose number it divides are followed
    """

    def __init__(self, interval: int) -> None:
        super().__init__()
        self.interval = interval
        self.batch: _Batch | None = None

    def set_num_updates(self, num_updates: int) -> None:
        """fairseq calls this before each batch, with how many updates have been made."""
        self.batch = _Batch() if self.training and (num_updates + 1) % self.interval == 0 else None

    @property
    def following(self) -> bool:
        """Whether the batch at hand is asked for; what is computed again in its backward pass no longer is."""
        return self.training and self.batch is not None

    def reads(self, stack: str, number: int, carried: Sequence[Tensor]) -> None:
        """Layer ``number``, from 1 on, is about to read ``carried``."""
        assert self.batch is not None
        for tensor in carried:
            if tensor.requires_grad:
                name = f"{stack}/{number}"
                self.batch.squares[name]  # the order of the layers, not that in which gradients come
                self.batch.waiting += 1
                tensor.register_hook(partial(self.batch.came, name))

    @contextmanager
    def weighing(self, stack: Stack, padding: Tensor | None) -> Iterator[None]:
        """Within the block, the learned weights of the stack's blocks are summed over what is not ``padding``."""
        assert self.batch is not None
        seen = self.batch.weights

        def see(block: int, weights: Sequence[Weight]) -> None:
            rows = [torch.as_tensor(weight).detach() for weight in weights]
            if rows[0].dim():  # [positions, 1] each
                real = torch.ones_like(rows[0][..., 0]) if padding is None else padding.logical_not().to(rows[0].dtype)
                rows = [*((row[..., 0] * real).sum() for row in rows), real.sum()]
            else:
                rows = [*rows, torch.ones_like(rows[0])]
            number, part = stack.stepped[block]
            seen["/".join((stack.stack, str(number), *part))].append(torch.stack(rows))

        if not stack.choice.has_learned_weights:
            yield
            return
        with weights_watched(stack, see):
            yield

    def loss_reads(self, log_probabilities: Tensor) -> None:
        """The end of the forward pass: the criterion makes its loss of these."""
        batch = self.batch
        if batch is None or not (self.training and log_probabilities.requires_grad):
            return

        def came(gradient: Tensor) -> None:
            batch.factor = -gradient.sum()

        log_probabilities.register_hook(came)
        self.batch = None


def log_depth(model: Any, interval: int) -> None:
    """Lets the stacks of a model log what happens in them at every ``interval`` updates; 0 for never."""
    if interval:
        log = DepthLog(interval)
        for name in ("encoder", "decoder"):
            if hasattr(model, name):
                getattr(model, name).depth_log = log
