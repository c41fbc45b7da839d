"""Label-smoothed cross entropy with one softmax for loss and gradient.

    log p = z − log Σ exp z,   ε' = ε / (V − 1)
    nll_i  = −log p_iy                                                  of word y at position i
    loss_i = −(1 − ε − ε') log p_iy − ε' Σ_v log p_iv                   as in fairseq; 0 at padding
    ∂ loss_i / ∂ z_iv = p_iv − ε' − (1 − ε − ε') [v = y]

The forward pass computes the gradient in the place of the probabilities: one tensor of all logits, where autograd keeps
the log-probabilities and allocates three more such tensors on the way back. Kernels of a GPU compute log Σ exp z
forward and the gradient in the place of z backward, and so need no tensor of float32.

Axes: N positions, V words.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ode_transformer.speed import kernels

BLOCK = 4096  # words of a program
WARPS = 8


def label_smoothed_cross_entropy(
    logits: Tensor, target: Tensor, padding: int, smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Return the losses and the negative log-likelihoods of all positions, [N] each, in float32.

    Only the losses have a gradient, for one backward pass, which may write into the logits.

    :param logits: [N, V]
    :param target: words y, [N]
    :param padding: the word whose positions count nothing
    :param smoothing: ε
    """
    function = _KernelLoss if kernels.is_used("loss", logits.device) else _Loss
    loss, nll = function.apply(logits, target, padding, smoothing)
    return loss, nll


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, padding: int, smoothing: float) -> tuple[Tensor, Tensor]:
        uniform, padded, y = smoothing / (logits.size(-1) - 1), target.eq(padding), target[:, None]
        p = logits.softmax(dim=-1, dtype=torch.float32)  # [N, V]
        # log Σ exp z by the likeliest word: its p is at least 1 / V, so that the logarithm is exact.
        log_sum = logits.amax(dim=-1).float() - p.amax(dim=-1).log()  # [N]
        z_y = logits.gather(1, y)[:, 0].float()
        nll, loss = log_sum - z_y, log_sum - (1 - smoothing - uniform) * z_y
        if uniform:
            loss -= uniform * logits.sum(dim=-1, dtype=torch.float32)
        if ctx.needs_input_grad[0]:
            gradient = p.sub_(uniform) if uniform else p
            gradient.scatter_add_(1, y, p.new_full((1, 1), smoothing + uniform - 1).expand_as(y))
            ctx.gradient, ctx.padded, ctx.dtype = gradient, padded, logits.dtype
        ctx.mark_non_differentiable(nll)
        return loss.masked_fill_(padded, 0.0), nll.masked_fill_(padded, 0.0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        gradient, ctx.gradient = ctx.gradient, None
        factors = gradients[0].masked_fill(ctx.padded, 0.0)[:, None]
        if factors.device.type == "cpu":
            rows = factors.ne(1.0).nonzero()[:, 0]  # as a rule those of padding alone
            gradient.index_copy_(0, rows, gradient[rows].mul_(factors[rows]))
        else:  # without a look at the values, for which the GPU would have to be waited for
            gradient.mul_(factors)
        return gradient.to(ctx.dtype), None, None, None


class _KernelLoss(torch.autograd.Function):
    """:class:`_Loss` by the kernels of :mod:`ode_transformer.speed.loss_kernels`."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, padding: int, smoothing: float) -> tuple[Tensor, Tensor]:
        logits, (positions, words) = logits.contiguous(), logits.shape
        uniform = smoothing / (words - 1)
        loss, nll, log_sum = logits.new_empty(3, positions, dtype=torch.float32)
        ctx.numbers = padding, 1 - smoothing - uniform, uniform
        moved = logits.numel() * logits.element_size() + positions * 20
        arguments = logits, target.contiguous(), loss, nll, log_sum, *ctx.numbers
        constants = {"V": words, "BLOCK": BLOCK, "num_warps": WARPS}
        kernels.launch("loss_kernels.forward", (positions,), moved, *arguments, **constants)
        ctx.logits, ctx.target, ctx.log_sum = logits, arguments[1], log_sum
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (logits, ctx.logits), factors = (ctx.logits, None), gradients[0]
        positions, words = logits.shape
        moved = 2 * logits.numel() * logits.element_size() + positions * 16
        arguments = logits, ctx.target, ctx.log_sum, factors, factors.stride(0), *ctx.numbers
        grid, constants = (positions, -(-words // BLOCK)), {"V": words, "BLOCK": BLOCK, "num_warps": WARPS}
        kernels.launch("loss_kernels.backward", grid, moved, *arguments, **constants)
        return logits, None, None, None
