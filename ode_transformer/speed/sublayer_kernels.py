"""Kernels of :mod:`ode_transformer.speed.sublayers`, one program for a row forward and for ``ROWS`` of them backward.

Sums are in float32. Sums over rows, for the gradients of biases and of normalisation, are written by each program of a
backward pass; PyTorch adds them up. Axes: N rows, C columns, ``BLOCK`` columns of a program.
"""

import triton
import triton.language as tl


@triton.jit
def survives(seed, row, lowest, first, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    """Tell for each of ``BLOCK`` columns from ``first`` on whether dropout keeps it: four from one call of Philox."""
    quadruple = (row * COLUMNS + first) // 4 + tl.arange(0, BLOCK // 4)
    a, b, c, d = tl.randint4x(tl.load(seed), quadruple)
    bits = tl.reshape(tl.join(tl.join(a, b), tl.join(c, d)), [BLOCK])
    return bits.to(tl.int32, bitcast=True) >= lowest


@triton.jit
def add_dropped(
    u, bias, total, y, weight, shift, seed, new_total, x, mean, deviation, lowest, scale, eps,
    C: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write s' = s + dropout(u + b), and x = LN(y + s') with 1 / σ and the mean of y + s' unless ``weight`` is None."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside, at = column < C, row * C + column
    s = tl.load(u + at, mask=inside, other=0.0).to(tl.float32) + tl.load(bias + column, mask=inside, other=0.0)
    s = tl.where(survives(seed, row, lowest, 0, BLOCK, BLOCK), s * scale, 0.0)
    if total is not None:
        s += tl.load(total + at, mask=inside, other=0.0).to(tl.float32)
    rounded = s.to(new_total.dtype.element_ty)
    tl.store(new_total + at, rounded, mask=inside)
    if weight is not None:
        t = tl.load(y + at, mask=inside, other=0.0).to(tl.float32) + rounded.to(tl.float32)
        m = tl.sum(t, 0) / C
        difference = tl.where(inside, t - m, 0.0)
        inverse = 1 / tl.sqrt(tl.sum(difference * difference, 0) / C + eps)
        w = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
        b = tl.load(shift + column, mask=inside, other=0.0).to(tl.float32)
        tl.store(x + at, (difference * inverse * w + b).to(x.dtype.element_ty), mask=inside)
        tl.store(mean + row, m)
        tl.store(deviation + row, inverse)


@triton.jit
def add_dropped_backward(
    dnew_total, dx, y, new_total, weight, seed, mean, deviation, du, dtotal, dy, sums, lowest, scale, N,
    C: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Write ∂u, ∂s and ∂y, and the programs' sums over rows of ∂b, and of γ and β unless ``weight`` is None."""
    program = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    dbias = tl.zeros([BLOCK], tl.float32)
    dweight, dshift = dbias, dbias
    for number in range(ROWS):
        row = program.to(tl.int64) * ROWS + number
        inside, at = (column < C) & (row < N), row * C + column
        ds = tl.load(dnew_total + at, mask=inside, other=0.0).to(tl.float32)
        if weight is not None:
            inverse = tl.load(deviation + row, mask=row < N, other=0.0)
            t = tl.load(y + at, mask=inside, other=0.0).to(tl.float32)
            t += tl.load(new_total + at, mask=inside, other=0.0).to(tl.float32)
            normal = tl.where(inside, (t - tl.load(mean + row, mask=row < N, other=0.0)) * inverse, 0.0)
            dh = tl.load(dx + at, mask=inside, other=0.0).to(tl.float32)
            dweight += dh * normal
            dshift += dh
            dnormal = dh * tl.load(weight + column, mask=column < C, other=0.0).to(tl.float32)
            dt = (dnormal - (tl.sum(dnormal, 0) + normal * tl.sum(dnormal * normal, 0)) / C) * inverse
            tl.store(dy + at, dt.to(dy.dtype.element_ty), mask=inside)
            ds += dt
            if dtotal is not None:
                tl.store(dtotal + at, ds.to(dtotal.dtype.element_ty), mask=inside)
        d = tl.where(survives(seed, row, lowest, 0, BLOCK, BLOCK), ds * scale, 0.0)
        tl.store(du + at, d.to(du.dtype.element_ty), mask=inside)
        dbias += d
    own = sums + program.to(tl.int64) * C * (1 if weight is None else 3) + column
    tl.store(own, dbias, mask=column < C)
    if weight is not None:
        tl.store(own + C, dweight, mask=column < C)
        tl.store(own + 2 * C, dshift, mask=column < C)


@triton.jit
def activate(z, bias, seed, h, lowest, scale, C: tl.constexpr, BLOCK: tl.constexpr, COLUMNS: tl.constexpr):
    """Write h = dropout(ReLU(z + b))."""
    row = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * BLOCK
    column = first + tl.arange(0, BLOCK)
    inside, at = column < C, row * C + column
    x = tl.load(z + at, mask=inside, other=0.0).to(tl.float32) + tl.load(bias + column, mask=inside, other=0.0)
    x = tl.where(x <= 0, 0.0, x)  # NaN stays, as in PyTorch
    x = tl.where(survives(seed, row, lowest, first, COLUMNS, BLOCK), x * scale, 0.0)
    tl.store(h + at, x.to(h.dtype.element_ty), mask=inside)


@triton.jit
def activate_backward(dh, h, dz, sums, scale, N, C: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """Write ∂z, which is 0 where h is, and the programs' sums of it over rows."""
    program = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for number in range(ROWS):
        row = program.to(tl.int64) * ROWS + number
        inside, at = (column < C) & (row < N), row * C + column
        d = tl.load(dh + at, mask=inside, other=0.0).to(tl.float32) * scale
        d = tl.where(tl.load(h + at, mask=inside, other=0.0) <= 0, 0.0, d)
        tl.store(dz + at, d.to(dz.dtype.element_ty), mask=inside)
        total += d
    tl.store(sums + program.to(tl.int64) * C + column, total, mask=column < C)


@triton.jit
def add_rows(sums, out, P, COLUMNS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Write the sum of P rows, ``ROWS`` of them at a time."""
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for first in range(0, P, ROWS):
        row = first + tl.arange(0, ROWS)[:, None]
        total += tl.load(sums + row * COLUMNS + column, mask=(row < P) & (column < COLUMNS), other=0.0)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + place, tl.sum(total, 0).to(out.dtype.element_ty), mask=place < COLUMNS)
