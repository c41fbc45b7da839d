"""Gradient norms and stage weights of each layer in the training log of fairseq (``--log-depth-interval``).

    depth/encoder/1/gradient_norm        ‖∂L/∂x_1‖₂, x_l all that layer l reads (``DepthScheme.layer_inputs``)
    depth/encoder/1/weight_2             γ_2, the weight of the second stage: mean over positions that are not padding
    depth/encoder/1/ffn/weight_2         the same where sub-layers are stepped one by one

Both are those of one batch of the first process, with dropout; L is the training loss per token. A criterion sums over
tokens, and half precision scales the sum, by a factor c that a model cannot read anywhere. But ∂L/∂log p sums to −1
over the batch, with label smoothing too, so that the backward pass tells c:

    ‖∂L/∂x_l‖₂ = ‖∂(cL)/∂x_l‖₂ / −Σ ∂(cL)/∂ log p
"""

import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from fairseq.logging import metrics
from torch import Tensor, nn

from ode_transformer.nn import BlockId, LayerId, LayerObserver, observable_stacks
from ode_transformer.numerics import LEARNED, Weight
from ode_transformer.support.depth_log_names import gradient_norm_name, stage_weight_name

_PRIORITY = 2000  # fairseq prints the numbers of a report by ascending priority: these come last


@dataclass
class _Batch:
    """Sums over one batch.

    :param squares: ‖∂(cL)/∂x‖² of each tensor that a layer reads
    :param weights: sums of a block's weights over positions, and the number of positions, [s + 1] each
    :param pending: number of gradients that the backward pass has not reached yet
    :param factor: c
    """

    squares: dict[LayerId, list[Tensor]] = field(default_factory=lambda: defaultdict(list))
    weights: dict[BlockId, list[Tensor]] = field(default_factory=lambda: defaultdict(list))
    pending: int = 0
    factor: Tensor | None = None

    def expect_gradient(self, layer: LayerId, tensor: Tensor) -> None:
        """Add the gradient of a tensor that a layer reads when the backward pass reaches it."""
        self.squares[layer]  # fixes the order in the log: that of the layers, not that of the gradients
        self.pending += 1
        tensor.register_hook(partial(self.add_gradient, layer))

    def add_gradient(self, layer: LayerId, gradient: Tensor) -> None:
        """Add a gradient; the last one completes the batch."""
        dtype = torch.promote_types(gradient.dtype, torch.float32)
        self.squares[layer].append(torch.linalg.vector_norm(gradient, dtype=dtype).square())
        self.pending -= 1
        if not self.pending:
            self.log()

    def log(self) -> None:
        """Pass everything to fairseq's log, by one transfer from the device; omit what is not finite."""
        if self.factor is None:
            return
        norms = {layer: torch.stack(squares).sum().sqrt() / self.factor for layer, squares in self.squares.items()}
        values = {gradient_norm_name(*layer): norm for layer, norm in norms.items()}
        for block, sums in self.weights.items():
            *means, positions = torch.stack(sums).sum(dim=0)
            values |= {stage_weight_name(*block, stage): mean / positions for stage, mean in enumerate(means, 1)}
        for name, value in zip(values, torch.stack([v.double() for v in values.values()]).tolist(), strict=True):
            if math.isfinite(value):
                metrics.log_scalar(name, value, priority=_PRIORITY)


class DepthLog(LayerObserver, nn.Module):
    """Observes one batch, from ``set_num_updates`` to the end of its backward pass.

    :param interval: updates whose number is a multiple of it are observed
    :param learned: names of the stacks whose stage weights are learned
    """

    whole_batch = False

    def __init__(self, interval: int, learned: Collection[str]) -> None:
        super().__init__()
        self.interval, self.learned = interval, learned
        self.batch: _Batch | None = None

    def set_num_updates(self, num_updates: int) -> None:
        """Begin a batch; fairseq calls this before each one, with the number of updates so far."""
        self.batch = _Batch() if self.training and (num_updates + 1) % self.interval == 0 else None

    @property
    def active(self) -> bool:
        """False between the observed updates, and for what activation checkpointing repeats in the backward pass."""
        return self.training and self.batch is not None

    def see_layer(
        self, layer: LayerId, inputs: Sequence[Tensor], outputs: Sequence[Tensor], padding: Tensor | None
    ) -> None:
        assert self.batch is not None
        for tensor in inputs:
            if tensor.requires_grad:
                self.batch.expect_gradient(layer, tensor)

    def see_stage_weights(self, block: BlockId, weights: Sequence[Weight], padding: Tensor | None) -> None:
        assert self.batch is not None
        if block.stack not in self.learned:
            return
        rows = [torch.as_tensor(weight).detach() for weight in weights]
        if rows[0].dim():  # [positions, 1] each
            real = torch.ones_like(rows[0][..., 0]) if padding is None else padding.logical_not().to(rows[0].dtype)
            rows = [*((row[..., 0] * real).sum() for row in rows), real.sum()]
        else:
            rows = [*rows, torch.ones_like(rows[0])]
        self.batch.weights[block].append(torch.stack(rows))

    def see_log_probabilities(self, log_probabilities: Tensor) -> None:
        """End the forward pass: the criterion computes its loss from these."""
        batch = self.batch
        if batch is None or not (self.training and log_probabilities.requires_grad):
            return

        def keep_factor(gradient: Tensor) -> None:
            batch.factor = -gradient.sum()

        log_probabilities.register_hook(keep_factor)
        self.batch = None


def log_depth(model: Any, interval: int) -> None:
    """Let the stacks of a model log gradient norms and stage weights at every ``interval`` updates; 0 for never."""
    if not interval:
        return
    stacks = observable_stacks(model)
    # A submodule of the model, because fairseq calls set_num_updates on submodules.
    model.depth_log = DepthLog(interval, [name for name, s in stacks.items() if s.choice.coefficients in LEARNED])
    for stack in stacks.values():
        stack.observers.append(model.depth_log)
