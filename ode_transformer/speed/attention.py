"""Attention of a training in which neither scores nor probabilities are stored, for texts of up to 128 positions.

    p = softmax(q · (k_j + A[o_ij]) / √D + bias),   z = dropout(p) v      A: relative positions (Shaw et al. 2018)

The formula is ``nn.MultiheadAttention.forward``. Queries, keys and values are read where the linear map has written
them, heads side by side, and their gradients are written as the map's backward pass reads them. A mask of dropout
follows from a seed, as in :mod:`ode_transformer.speed.sublayers`.

Axes: B sentences, T queries, S keys, H heads, D numbers of a head.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ode_transformer.nn import AttentionMask, Layer, MultiheadAttention
from ode_transformer.speed import kernels
from ode_transformer.speed.kernels import kept_numbers, power_of_2

LONGEST = 128  # keys, which a program holds at once
# Keys, rounded up to a power of 2 → queries of a step of a program at most, and its warps: none spills a register
STEPS = {16: (16, 4), 32: (32, 4), 64: (32, 8), 128: (16, 8)}


def faster_methods(layer: Layer) -> Iterator[tuple[nn.Module, str, Callable[..., Any]]]:
    """Yield what replaces methods of a layer's attentions: module, name of the method, function."""
    for module in layer.modules():
        if type(module) is MultiheadAttention and module.relative_values is None and not module.dropout.shared:
            yield module, "forward", partial(attend, module)


def attend(
    module: MultiheadAttention, x: Tensor, mask: AttentionMask, source: Tensor | None = None, **more: Any
) -> Tensor:
    """Attend as ``MultiheadAttention.forward`` does, by kernels where they can."""
    longest = max(x.size(1), x.size(1) if source is None else source.size(1))
    if x.dim() != 3 or longest > LONGEST or any(value is not None for value in more.values()):
        return MultiheadAttention.forward(module, x, mask, source, **more)
    projected = module.in_proj(x) if source is None else module.q_proj(x)
    key_value = None if source is None else module.kv_proj(source)
    table = None if module.relative_keys is None else module.relative_keys.weight
    seed = torch.randint(2**63 - 1, (1,), device=x.device)
    z: Tensor = _Attention.apply(projected, key_value, table, mask.bias, seed, module.heads, module.dropout.active)
    return module.out_proj(z)


class _Attention(torch.autograd.Function):
    """z [B, T, H · D] of q, k, v [B, T, 3 H D], or of q [B, T, H D] and k, v [B, S, 2 H D]."""

    @staticmethod
    def forward(ctx: Any, projected: Tensor, key_value: Tensor | None, table: Tensor | None, *arguments: Any) -> Tensor:
        bias, seed, heads, probability = arguments
        projected, key_value = projected.contiguous(), None if key_value is None else key_value.contiguous()
        q, k, v = parts = _parts(projected, key_value)
        (sentences, queries, width), keys = q.shape, k.size(1)
        strides = (0, 0, 0)
        if bias is not None:
            bias = bias.expand(sentences, 1, queries, keys)
            strides = bias.stride(0), bias.stride(2), bias.stride(3)
        clip = 0 if table is None else len(table) // 2
        room = max(16, power_of_2(keys))
        step, warps = STEPS[room]
        constants = {"H": heads, "D": width // heads, "WIDTH": max(16, power_of_2(width // heads)), "num_warps": warps}
        constants |= {"QUERIES": min(step, max(16, power_of_2(queries))), "KEYS": room}
        constants |= {"CLIP": clip, "OFFSETS": max(16, power_of_2(2 * clip + 1))}
        scale = (width // heads) ** -0.5
        numbers = q.stride(1), k.stride(1), *strides, queries, keys, *kept_numbers(probability), scale
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        moved = kernels.bytes_of(*parts, out)
        grid = sentences * heads, -(-queries // constants["QUERIES"])
        kernels.launch("attention_kernels.forward", grid, moved, *parts, table, bias, seed, out, *numbers, **constants)
        ctx.save_for_backward(projected, key_value, table, bias, seed)
        ctx.numbers, ctx.constants = numbers, constants
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dout: Tensor) -> tuple[Tensor | None, ...]:
        projected, key_value, table, bias, seed = ctx.saved_tensors
        parts, heads = _parts(projected, key_value), ctx.constants["H"]
        dprojected = torch.empty_like(projected)
        dkey_value = None if key_value is None else torch.empty_like(key_value)
        gradients = _parts(dprojected, dkey_value)
        products = None if table is None else dout.new_empty(dout.shape[0] * dout.shape[1], heads, len(table))
        dout = dout.contiguous()
        moved = kernels.bytes_of(*parts, dout, *gradients, *(() if products is None else (products,)))
        tensors = *parts, table, bias, seed, dout, *gradients, products
        grid = (len(dout) * heads,)
        kernels.launch("attention_kernels.backward", grid, moved, *tensors, *ctx.numbers, **ctx.constants)
        dtable = None
        if products is not None:
            q = parts[0].reshape(-1, parts[0].size(-1)).unflatten(-1, (heads, -1))  # [B · T, H, D]
            dtable = torch.bmm(products.permute(1, 2, 0), q.transpose(0, 1)).sum(0)
        return dprojected, dkey_value, dtable, None, None, None, None


def _parts(projected: Tensor, key_value: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return q, k and v as views."""
    q, k, v = projected.chunk(3, -1) if key_value is None else (projected, *key_value.chunk(2, -1))
    return q, k, v
