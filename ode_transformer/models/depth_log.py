"""Gradient norms and stage weights of each layer in the training log of fairseq (``--log-depth-interval``).

    depth/encoder/1/gradient_norm        ‖∂L/∂x_1‖₂, x_l all that layer l reads (``tensors_between``)
    depth/encoder/1/weight_2             γ_2, the weight of the second stage: mean over positions that are not padding
    depth/encoder/1/ffn/weight_2         the same where sub-layers are stepped one by one

Both are those of one batch of the first process, with dropout; L is the training loss per token. A criterion sums over
tokens, and half precision scales the sum, by a factor c that a model cannot read anywhere. But ∂L/∂log p sums to −1
over the batch, with label smoothing too, so that the backward pass tells c:

    ‖∂L/∂x_l‖₂ = ‖∂(cL)/∂x_l‖₂ / −Σ ∂(cL)/∂ log p
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from fairseq.logging import metrics
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ode_transformer.nn import BlockId, LayerId
from ode_transformer.nn.layer_hooks import depth_stacks, see_layer_inputs, see_stage_weights
from ode_transformer.numerics import LEARNED, Weight
from ode_transformer.support.depth_log_names import GRADIENT_NORM, PREFIX

_PRIORITY = 2000  # fairseq prints the numbers of a report by ascending priority: these come last


class DepthLog(nn.Module):
    """Sees one batch, from ``set_num_updates`` to the end of its backward pass.

    :param interval: updates whose number is a multiple of it are seen
    """

    def __init__(self, interval: int, stacks: Mapping[str, Any]) -> None:
        super().__init__()
        self.interval, self.stacks = interval, stacks
        self.handles: list[RemovableHandle] = []
        self._begin()

    def _begin(self) -> None:
        self.squares: dict[LayerId, list[Tensor]] = defaultdict(list)  # ‖∂(cL)/∂x‖² of each tensor that a layer reads
        # Sums of a block's weights over positions, and the number of positions, [s + 1] each
        self.weights: dict[BlockId, list[Tensor]] = defaultdict(list)
        self.pending = 0  # gradients that the backward pass has not reached yet
        self.factor: Tensor | None = None  # c

    def set_num_updates(self, num_updates: int) -> None:
        """Begin a batch; fairseq calls this before each one, with the number of updates so far."""
        self._end_forward()
        if not self.training or (num_updates + 1) % self.interval:
            return
        self._begin()
        for stack in self.stacks.values():
            self.handles += see_layer_inputs(stack, self._see_layer)
            if stack.choice.coefficients in LEARNED:
                self.handles += see_stage_weights(stack, self._see_stage_weights)
        self.stacks["decoder"].see_log_probabilities = self._see_log_probabilities

    def _end_forward(self) -> None:
        self.stacks["decoder"].see_log_probabilities = None
        while self.handles:
            self.handles.pop().remove()

    def _see_layer(self, layer: LayerId, inputs: Sequence[Tensor], padding: Tensor | None) -> None:
        for tensor in inputs if self.training else ():
            if tensor.requires_grad:
                self.squares[layer]  # fixes the order in the log: that of the layers, not that of the gradients
                self.pending += 1
                tensor.register_hook(partial(self._add_gradient, layer))

    def _see_stage_weights(self, block: BlockId, weights: Sequence[Weight], padding: Tensor | None) -> None:
        if not self.training:
            return
        rows = [torch.as_tensor(weight).detach() for weight in weights]
        if rows[0].dim():  # [positions, 1] each
            real = torch.ones_like(rows[0][..., 0]) if padding is None else padding.logical_not().to(rows[0].dtype)
            rows = [*((row[..., 0] * real).sum() for row in rows), real.sum()]
        else:
            rows = [*rows, torch.ones_like(rows[0])]
        self.weights[block].append(torch.stack(rows))

    def _see_log_probabilities(self, log_probabilities: Tensor) -> None:
        """End the forward pass: the criterion computes its loss from these."""
        if self.training and log_probabilities.requires_grad:
            log_probabilities.register_hook(self._keep_factor)
            self._end_forward()

    def _keep_factor(self, gradient: Tensor) -> None:
        self.factor = -gradient.sum()

    def _add_gradient(self, layer: LayerId, gradient: Tensor) -> None:
        """Add the gradient of a tensor that a layer reads; the last one completes the batch."""
        dtype = torch.promote_types(gradient.dtype, torch.float32)
        self.squares[layer].append(torch.linalg.vector_norm(gradient, dtype=dtype).square())
        self.pending -= 1
        if not self.pending and self.factor is not None:
            self._log(self.factor)

    def _log(self, factor: Tensor) -> None:
        """Pass everything to fairseq's log, by one transfer from the device; omit what is not finite."""
        norms = {layer: torch.stack(squares).sum().sqrt() / factor for layer, squares in self.squares.items()}
        values = {f"{PREFIX}{stack}/{number}/{GRADIENT_NORM}": norm for (stack, number), norm in norms.items()}
        for (stack, number, sublayers), sums in self.weights.items():
            block = f"{number}/{sublayers}" if sublayers else number
            *means, positions = torch.stack(sums).sum(dim=0)
            values |= {f"{PREFIX}{stack}/{block}/weight_{n}": mean / positions for n, mean in enumerate(means, 1)}
        for name, value in zip(values, torch.stack([v.double() for v in values.values()]).tolist(), strict=True):
            if math.isfinite(value):
                metrics.log_scalar(name, value, priority=_PRIORITY)


def log_depth(model: Any, interval: int) -> None:
    """Let the stacks of a model log gradient norms and stage weights at every ``interval`` updates; 0 for never."""
    if interval:
        # A submodule of the model, because fairseq calls set_num_updates on submodules.
        model.depth_log = DepthLog(interval, depth_stacks(model))
