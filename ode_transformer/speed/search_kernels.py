"""Kernel of :mod:`ode_transformer.speed.search_attention`: one program for a row and a head, with sums in float32."""

import triton
import triton.language as tl


@triton.jit
def attend(
    projected,
    memory,
    table,
    position,
    relative,
    out,
    scale,
    R: tl.constexpr,
    H: tl.constexpr,
    D: tl.constexpr,
    L: tl.constexpr,
    T: tl.constexpr,
    CLIP: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write k and v of the present position, and z = Σ softmax(q · (k_t + A[o_t]) scale) v_t, up to it."""
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    now = tl.load(position)
    d = tl.arange(0, WIDTH)
    own = projected + row * 3 * H * D + head * D + d
    q = tl.load(own, mask=d < D, other=0.0).to(tl.float32)
    k_now = tl.load(own + H * D, mask=d < D, other=0.0)
    v_now = tl.load(own + 2 * H * D, mask=d < D, other=0.0)
    place = memory + (now * 2 * R + row) * H * D + head * D + d
    tl.store(place, k_now, mask=d < D)
    tl.store(place + R * H * D, v_now, mask=d < D)
    greatest, exponentials = -float("inf"), 0.0
    total = tl.zeros([WIDTH], tl.float32)
    for start in range(0, T, BLOCK):
        t = start + tl.arange(0, BLOCK)
        is_past = (t < now)[:, None] & (d < D)[None, :]
        source = tl.load(table + row * L + t, mask=t < now, other=0)
        at = memory + ((t * 2 * R + source) * H * D + head * D)[:, None] + d[None, :]
        is_now = (t == now)[:, None]
        k = tl.where(is_now, k_now[None, :], tl.load(at, mask=is_past, other=0.0)).to(tl.float32)
        v = tl.where(is_now, v_now[None, :], tl.load(at + R * H * D, mask=is_past, other=0.0)).to(tl.float32)
        if CLIP > 0:
            offset = tl.minimum(tl.maximum(t - now, -CLIP), CLIP) + CLIP
            k += tl.load(relative + offset[:, None] * D + d[None, :], mask=(d < D)[None, :], other=0.0).to(tl.float32)
        e = tl.where(t <= now, tl.sum(q[None, :] * k, 1) * scale, -float("inf"))
        larger = tl.maximum(greatest, tl.max(e, 0))
        p = tl.where(t <= now, tl.exp(e - larger), 0.0)
        shrink = tl.exp(greatest - larger)
        exponentials = exponentials * shrink + tl.sum(p, 0)
        total = total * shrink + tl.sum(p[:, None] * v, 0)
        greatest = larger
    tl.store(out + row * H * D + head * D + d, total / exponentials, mask=d < D)
