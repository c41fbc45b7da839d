"""Label-smoothed cross entropy whose forward pass also computes the gradient, in the place of the probabilities.

    log p = z − log Σ exp z,   ε' = ε / (V − 1)
    nll_i  = −log p_iy                                                  of word y at position i
    loss_i = −(1 − ε − ε') log p_iy − ε' Σ_v log p_iv                   as in fairseq; 0 at padding
    ∂ loss_i / ∂ z_iv = p_iv − ε' − (1 − ε − ε') [v = y]

One softmax and one tensor of all logits, where autograd keeps the log-probabilities and allocates three more such
tensors on the way back. Axes: N positions, V words.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def label_smoothed_cross_entropy(
    logits: Tensor, target: Tensor, padding: int, smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Return the losses and the negative log-likelihoods of all positions, [N] each, in float32.

    Only the losses have a gradient, for one backward pass.

    :param logits: [N, V]
    :param target: words y, [N]
    :param padding: the word whose positions count nothing
    :param smoothing: ε
    """
    loss, nll = _Loss.apply(logits, target, padding, smoothing)
    return loss, nll


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, padding: int, smoothing: float) -> tuple[Tensor, Tensor]:
        share, padded, y = smoothing / (logits.size(-1) - 1), target.eq(padding), target[:, None]
        p = logits.softmax(dim=-1, dtype=torch.float32)  # [N, V]
        # log Σ exp z by the likeliest word: its p is at least 1 / V, so that the logarithm is exact.
        log_sum = logits.amax(dim=-1).float() - p.amax(dim=-1).log()  # [N]
        z_y = logits.gather(1, y)[:, 0].float()
        nll, loss = log_sum - z_y, log_sum - (1 - smoothing - share) * z_y
        if share:
            loss -= share * logits.sum(dim=-1, dtype=torch.float32)
        if ctx.needs_input_grad[0]:
            gradient = p.sub_(share) if share else p
            gradient.scatter_add_(1, y, p.new_full((1, 1), smoothing + share - 1).expand_as(y))
            ctx.gradient, ctx.padded, ctx.dtype = gradient, padded, logits.dtype
        ctx.mark_non_differentiable(nll)
        return loss.masked_fill_(padded, 0.0), nll.masked_fill_(padded, 0.0)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        gradient, ctx.gradient = ctx.gradient, None
        if gradient is None:
            raise RuntimeError("this loss has one backward pass, which overwrites what it keeps")
        factors = gradients[0].masked_fill(ctx.padded, 0.0)[:, None]
        if factors.device.type == "cpu":
            rows = factors.ne(1.0).nonzero()[:, 0]  # as a rule those of padding alone
            gradient.index_copy_(0, rows, gradient[rows].mul_(factors[rows]))
        else:  # without a look at the values, for which the GPU would have to be waited for
            gradient.mul_(factors)
        return gradient.to(ctx.dtype), None, None, None
