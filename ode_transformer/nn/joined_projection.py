"""Several linear maps of one input as a single product of matrices.

    [y_1; …; y_n] = [W_1; …; W_n] x + [b_1; …; b_n]

The maps keep their own parameters, names and gradients. Their numbers lie side by side in memory, as those of
PyTorch's recurrent networks do, so that the joined matrix is a view and no call copies it.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ode_transformer.nn.linear import Linear, linear_map, map_gradients


def joined(parameters: Sequence[Tensor]) -> Tensor:
    """Return parameters [m_i, ..] as one tensor [Σ m_i, ..] without a gradient, a view of them where that can be.

    Parameters that do not lie side by side, as after they were moved or converted, are moved there first.
    """
    if torch.compiler.is_compiling() or not all(isinstance(p, nn.Parameter) for p in parameters):
        return torch.cat([p.detach() for p in parameters])
    place = parameters[0].data_ptr()
    for parameter in parameters:
        if parameter.data_ptr() != place or not parameter.is_contiguous():
            break
        place += parameter.nbytes
    else:
        first = parameters[0].detach()
        if first.untyped_storage().data_ptr() + first.untyped_storage().nbytes() >= place:
            return first.as_strided((sum(map(len, parameters)), *first.shape[1:]), first.stride())
    with torch.inference_mode(False):  # the parameters may be trained later
        whole = torch.cat([p.detach() for p in parameters])
    for parameter, part in zip(parameters, whole.split([len(p) for p in parameters]), strict=True):
        parameter.data = part
    return whole


def project_heads(x: Tensor, projections: Sequence[Linear], heads: int) -> tuple[Tensor, ...]:
    """Return the projections of ``x``, divided into heads.

    :param x: [B, T, input_dim]
    :param projections: n maps to C channels
    :param heads: H
    :returns: n tensors [B, H, T, C/H]
    """
    if not torch.is_grad_enabled():  # each by itself: int8 has maps without a weight
        return tuple(p(x).unflatten(-1, (heads, -1)).transpose(-3, -2) for p in projections)
    parts: tuple[Tensor, ...] = _ProjectHeads.apply(
        x, heads, *(p.weight for p in projections), *(p.bias for p in projections)
    )
    return parts


class _ProjectHeads(torch.autograd.Function):
    """:func:`project_heads` with gradients: one product for x, one for all weights."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, heads: int, *parameters: nn.Parameter) -> tuple[Tensor, ...]:
        maps = len(parameters) // 2
        weight, bias = joined(parameters[:maps]), joined(parameters[maps:])
        y = linear_map(x, weight, bias)  # [B, T, n · C]
        ctx.save_for_backward(x.to(y.dtype), weight.to(y.dtype))  # autocast multiplies in half precision
        ctx.rows = [len(p) for p in parameters[:maps]]
        y = y.unflatten(-1, (maps, heads, -1)).movedim(-3, 0).transpose(-3, -2)  # [n, B, H, T, C/H]
        if x.device.type == "cpu":
            y = y.contiguous()  # for products of matrices, which would each copy its part
        return y.unbind()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        dy = torch.stack([dy.transpose(-3, -2) for dy in gradients], dim=-3).flatten(-3)  # [B, T, n · C]
        dx, dweight, dbias = map_gradients(dy, x, weight, dx=ctx.needs_input_grad[0])
        assert dweight is not None
        assert dbias is not None
        return dx, None, *dweight.split(ctx.rows), *dbias.split(ctx.rows)
