"""Kernels of :mod:`ode_transformer.speed.attention`: a program for a sentence and a head, or for a step of it forward.

Products are summed in float32. Axes of a tile: ``QUERIES`` i, ``KEYS`` j of the sentence at once, ``WIDTH`` numbers of
a head, ``OFFSETS`` relative positions. What exceeds T queries, S keys, D numbers or 2 CLIP + 1 offsets is zero.
"""

import triton
import triton.language as tl


@triton.jit
def load(start, row, stride, N, D: tl.constexpr, WIDTH: tl.constexpr):
    """Load rows of D numbers, which begin ``stride`` numbers apart."""
    d = tl.arange(0, WIDTH)
    return tl.load(start + row[:, None] * stride + d[None, :], mask=(row < N)[:, None] & (d < D)[None, :], other=0.0)


@triton.jit
def store(start, row, stride, N, x, D: tl.constexpr, WIDTH: tl.constexpr):
    """Store rows as :func:`load` reads them."""
    d = tl.arange(0, WIDTH)
    at = start + row[:, None] * stride + d[None, :]
    tl.store(at, x.to(start.dtype.element_ty), mask=(row < N)[:, None] & (d < D)[None, :])


@triton.jit
def multiply(a, b):
    """Return the product of two tiles, summed in float32."""
    return tl.dot(a, b, input_precision="ieee")


@triton.jit
def probabilities(q, k, a, bias, i, j, bias_query, bias_key, T, S, scale, CLIP: tl.constexpr):
    """Return softmax(q · (k_j + A[o_ij]) scale + bias) over the keys, [QUERIES, KEYS]."""
    scores = multiply(q, tl.trans(k))
    if CLIP > 0:
        offset = tl.minimum(tl.maximum(j[None, :] - i[:, None], -CLIP), CLIP) + CLIP
        scores += tl.gather(multiply(q, tl.trans(a)), offset, 1)
    scores *= scale
    if bias is not None:
        at = bias + i[:, None] * bias_query + j[None, :] * bias_key
        scores += tl.load(at, mask=(i < T)[:, None] & (j < S)[None, :], other=0.0).to(tl.float32)
    scores = tl.where(j[None, :] < S, scores, -float("inf"))
    exponentials = tl.exp(scores - tl.max(scores, 1)[:, None])
    return exponentials / tl.sum(exponentials, 1)[:, None]


@triton.jit
def survives(seed, sentence_and_head, i, T, lowest, QUERIES: tl.constexpr, KEYS: tl.constexpr):
    """Tell for each pair whether dropout keeps it: four from one call of Philox."""
    row = sentence_and_head.to(tl.int64) * T + i
    a, b, c, d = tl.randint4x(tl.load(seed), row[:, None] * (KEYS // 4) + tl.arange(0, KEYS // 4)[None, :])
    bits = tl.reshape(tl.join(tl.join(a, b), tl.join(c, d)), [QUERIES, KEYS])
    return bits.to(tl.int32, bitcast=True) >= lowest


@triton.jit
def forward(
    q, k, v, table, bias, seed, out, query_stride, key_stride, bias_sentence, bias_query, bias_key, T, S,
    lowest, factor, scale,
    H: tl.constexpr, D: tl.constexpr, CLIP: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, WIDTH: tl.constexpr, OFFSETS: tl.constexpr,
):  # fmt: skip
    """Write dropout(p) v, [B, T, H · D]."""
    sentence, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    i, j = tl.program_id(1) * QUERIES + tl.arange(0, QUERIES), tl.arange(0, KEYS)
    own_q = load(q + sentence * T * query_stride + head * D, i, query_stride, T, D, WIDTH)
    own_k = load(k + sentence * S * key_stride + head * D, j, key_stride, S, D, WIDTH)
    own_v = load(v + sentence * S * key_stride + head * D, j, key_stride, S, D, WIDTH)
    a = own_k
    if CLIP > 0:
        a = load(table, tl.arange(0, OFFSETS), D, 2 * CLIP + 1, D, WIDTH)
    own_bias = bias
    if bias is not None:
        own_bias = bias + sentence * bias_sentence
    p = probabilities(own_q, own_k, a, own_bias, i, j, bias_query, bias_key, T, S, scale, CLIP)
    p = tl.where(survives(seed, tl.program_id(0), i, T, lowest, QUERIES, KEYS), p * factor, 0.0)
    z = multiply(p.to(own_v.dtype), own_v)
    store(out + sentence * T * H * D + head * D, i, H * D, T, z, D, WIDTH)


@triton.jit
def backward(
    q, k, v, table, bias, seed, dout, dq, dk, dv, dproducts, query_stride, key_stride,
    bias_sentence, bias_query, bias_key, T, S, lowest, factor, scale,
    H: tl.constexpr, D: tl.constexpr, CLIP: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, WIDTH: tl.constexpr, OFFSETS: tl.constexpr,
):  # fmt: skip
    """Write ∂q, ∂k, ∂v and, [B, T, H, 2 CLIP + 1], the gradient of q · A scale, for a sentence and a head."""
    sentence, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    j, o = tl.arange(0, KEYS), tl.arange(0, OFFSETS)
    queries, keys = sentence * T * query_stride + head * D, sentence * S * key_stride + head * D
    own_k = load(k + keys, j, key_stride, S, D, WIDTH)
    own_v = load(v + keys, j, key_stride, S, D, WIDTH)
    a = own_k
    if CLIP > 0:
        a = load(table, o, D, 2 * CLIP + 1, D, WIDTH)
    own_bias = bias
    if bias is not None:
        own_bias = bias + sentence * bias_sentence
    own_dk = tl.zeros([KEYS, WIDTH], tl.float32)
    own_dv = tl.zeros([KEYS, WIDTH], tl.float32)
    for start in range(0, T, QUERIES):
        i = start + tl.arange(0, QUERIES)
        own_q = load(q + queries, i, query_stride, T, D, WIDTH)
        dz = load(dout + sentence * T * H * D + head * D, i, H * D, T, D, WIDTH)
        p = probabilities(own_q, own_k, a, own_bias, i, j, bias_query, bias_key, T, S, scale, CLIP)
        kept = survives(seed, tl.program_id(0), i, T, lowest, QUERIES, KEYS)
        own_dv += multiply(tl.trans(tl.where(kept, p * factor, 0.0).to(dz.dtype)), dz)
        dp = tl.where(kept, multiply(dz, tl.trans(own_v)) * factor, 0.0)
        ds = p * (dp - tl.sum(p * dp, 1)[:, None]) * scale
        rounded = ds.to(own_q.dtype)
        own_dq = multiply(rounded, own_k)
        own_dk += multiply(tl.trans(rounded), own_q)
        if CLIP > 0:  # pairs of one offset: one, but for the outermost offsets
            distance, partner = j[None, :] - i[:, None], i[:, None] + o[None, :] - CLIP
            inner = (o > 0)[None, :] & (o < 2 * CLIP)[None, :] & (partner >= 0) & (partner < KEYS)
            dr = tl.where(inner, tl.gather(ds, tl.minimum(tl.maximum(partner, 0), KEYS - 1), 1), 0.0)
            left = tl.sum(tl.where(distance <= -CLIP, ds, 0.0), 1)
            right = tl.sum(tl.where(distance >= CLIP, ds, 0.0), 1)
            dr += tl.where((o == 0)[None, :], left[:, None], 0.0) + tl.where(
                (o == 2 * CLIP)[None, :], right[:, None], 0.0
            )
            dr_rounded = dr.to(own_q.dtype)
            own_dq += multiply(dr_rounded, a)
            offsets: tl.constexpr = 2 * CLIP + 1
            store(dproducts + (sentence * T * H + head) * offsets, i, H * offsets, T, dr_rounded, offsets, OFFSETS)
        store(dq + queries, i, query_stride, T, own_dq, D, WIDTH)
    store(dk + keys, j, key_stride, S, own_dk, D, WIDTH)
    store(dv + keys, j, key_stride, S, own_dv, D, WIDTH)
