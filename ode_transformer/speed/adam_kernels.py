"""Kernel of :mod:`ode_transformer.speed.adam`: an update in float32 that reads gradients and writes values twice."""

import triton
import triton.language as tl


@triton.jit
def update(
    values, rounded, gradients, m, v, scale, overflow, rate, decay, keep1, add1, keep2, add2, eps, N,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Update N values and write them rounded, too, unless ``overflow`` is 1.

    m ← β₁ m + (1 − β₁) g,   v ← β₂ v + (1 − β₂) g²,   θ ← θ − decay θ − rate m / (√v + ε),   g = gradient / scale
    """
    if overflow is None or tl.load(overflow) == 0:
        at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        inside = at < N
        g = tl.load(gradients + at, mask=inside, other=0.0).to(tl.float32)
        if scale is not None:
            g = tl.div_rn(g, tl.load(scale))
        new_m = keep1 * tl.load(m + at, mask=inside, other=0.0) + add1 * g
        new_v = keep2 * tl.load(v + at, mask=inside, other=0.0) + add2 * g * g
        old = tl.load(values + at, mask=inside, other=0.0)
        new = old - decay * old
        new -= tl.div_rn(rate * new_m, tl.sqrt_rn(new_v) + eps)
        tl.store(m + at, new_m, mask=inside)
        tl.store(v + at, new_v, mask=inside)
        tl.store(values + at, new, mask=inside)
        tl.store(rounded + at, new.to(rounded.dtype.element_ty), mask=inside)
