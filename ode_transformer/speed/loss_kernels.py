"""Kernels of :mod:`ode_transformer.speed.losses`: log Σ exp z forward, the gradient in the place of z backward.

Sums are in float32; no matrix of N · V numbers is written but the gradient. Axes: N positions, V words, one program for
a position forward and for ``BLOCK`` of its words backward.
"""

import triton
import triton.language as tl


@triton.jit
def forward(z, target, loss, nll, log_sum, padding, own, uniform, V: tl.constexpr, BLOCK: tl.constexpr):
    """Write loss = log Σ exp z − own z_y − uniform Σ z, nll = log Σ exp z − z_y, and log Σ exp z, [N] each."""
    row = tl.program_id(0).to(tl.int64)
    z += row * V
    y = tl.load(target + row)
    greatest, exponentials, total = -float("inf"), 0.0, 0.0
    for start in range(0, V, BLOCK):
        word = start + tl.arange(0, BLOCK)
        x = tl.load(z + word, mask=word < V, other=-float("inf")).to(tl.float32)
        larger = tl.maximum(greatest, tl.max(x, 0))
        exponentials = exponentials * tl.exp(greatest - larger) + tl.sum(tl.exp(x - larger), 0)
        total += tl.sum(tl.where(word < V, x, 0.0), 0)
        greatest = larger
    z_y = tl.load(z + y).to(tl.float32)
    logarithm = greatest + tl.log(exponentials)
    tl.store(log_sum + row, logarithm)
    tl.store(nll + row, tl.where(y == padding, 0.0, logarithm - z_y))
    tl.store(loss + row, tl.where(y == padding, 0.0, logarithm - own * z_y - uniform * total))


@triton.jit
def backward(z, target, log_sum, factor, stride, padding, own, uniform, V: tl.constexpr, BLOCK: tl.constexpr):
    """Replace z by factor · (exp(z − log Σ exp z) − uniform − own [v = y]), the gradient of the loss."""
    row = tl.program_id(0).to(tl.int64)
    y = tl.load(target + row)
    scale = tl.where(y == padding, 0.0, tl.load(factor + row * stride).to(tl.float32))
    word = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    at = z + row * V + word
    x = tl.load(at, mask=word < V, other=-float("inf")).to(tl.float32)
    gradient = (tl.exp(x - tl.load(log_sum + row)) - uniform - tl.where(word == y, own, 0.0)) * scale
    tl.store(at, gradient.to(z.dtype.element_ty), mask=word < V)
