"""The increment of a pre-norm layer with few launches: what stands between products of matrices is one kernel each.

    s' = s + dropout(u + b),   x = LN(y + s')      end of a sub-layer u = W v and start of the next; s = 0 at the first
    h = dropout(ReLU(z + b))                       inner layer of a feed-forward network, z = W x

The formulas are ``nn.Layer.increment`` and ``nn.FeedForward.forward``; the kernels round s' and x alone, and add up the
gradients of b, γ and β on the way.

A mask is drawn anew in the backward pass from a seed, which is a number on the GPU that PyTorch's generator has drawn
in the forward pass. So a replay has other masks than the one before, and whoever sets the generator back, as
activation checkpointing and a resumed training do, has the same masks again.

Axes: N rows (positions of all texts), C columns.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ode_transformer.nn import Context, FeedForward, Layer, MultiheadAttention, SubLayer, linear_map
from ode_transformer.nn.layer import copies_of
from ode_transformer.speed import kernels
from ode_transformer.speed.kernels import kept_numbers, power_of_2

ROWS = 16  # of a program backward
BLOCK = 512  # columns of a program of the inner layer
WARPS = 4


def faster_methods(layer: nn.Module) -> Iterator[tuple[nn.Module, str, Callable[..., Any]]]:
    """Yield what replaces methods of a layer and its parts: module, name of the method, function; nothing if unfit."""
    if type(layer) is Layer and layer.function == "increment" and all(is_stepped for _, is_stepped in layer.blocks):
        sublayers = [copy for sublayer in layer.values() for copy in copies_of(sublayer)]
        if all(map(_fits, sublayers)):
            yield layer, "increment", partial(increment, layer)
            for sublayer in sublayers:
                last = _last_map(sublayer)
                yield last, "forward", partial(_without_bias, last)


def _fits(sublayer: SubLayer) -> bool:
    """Tell whether a sub-layer is pre-norm, takes a whole step, shares no noise and ends with a linear map."""
    plain = sublayer.normalize_before and sublayer.step_fraction == 1.0 and not sublayer.dropout.shared
    known = type(sublayer.function) in (FeedForward, MultiheadAttention)
    return plain and known and isinstance(sublayer.layer_norm, nn.LayerNorm)


def _last_map(sublayer: SubLayer) -> nn.Linear:
    """Return the linear map that ends a sub-layer, whose bias the next kernel adds."""
    function: Any = sublayer.function
    last: nn.Linear = function.fc2 if isinstance(function, FeedForward) else function.out_proj
    return last


def _without_bias(linear: nn.Linear, x: Tensor) -> Tensor:
    return linear_map(x, linear.weight)


def increment(layer: Layer, y: Tensor, stage: int, context: Context, names: Sequence[str]) -> Tensor:
    """Return what a block adds, [.., C], as ``Layer.increment`` does; the last maps of its sub-layers add no bias."""
    sublayers = [layer.sublayer(name, stage) for name in names]
    seeds = torch.randint(2**63 - 1, (2 * len(sublayers),), device=y.device)
    total, x = None, sublayers[0].layer_norm(y)
    for number, (sublayer, following) in enumerate(zip_longest(sublayers, sublayers[1:])):
        function, (seed, inner_seed) = sublayer.function, seeds[2 * number :][:2].split(1)
        if isinstance(function, FeedForward) and _is_relu(function):
            z = linear_map(x, function.fc1.weight)  # [.., inner_dim]
            u = function.fc2(activate(z, function.fc1.bias, inner_seed, function.dropout.active))
        else:
            u = sublayer.evaluate(x, context, stage)
        norm = None if following is None else following.layer_norm
        total, x = add_dropped(u, _last_map(sublayer).bias, total, y, norm, seed, sublayer.dropout.active)
    assert total is not None
    return total


def _is_relu(function: FeedForward) -> bool:
    plain = function.activation is nn.functional.relu and isinstance(function.layer_norm, nn.Identity)
    return plain and not function.dropout.shared


def add_dropped(
    u: Tensor, bias: Tensor, total: Tensor | None, y: Tensor, norm: Any, seed: Tensor, probability: float
) -> tuple[Tensor, Tensor]:
    """Return s' = s + dropout(u + b) and x = LN(y + s'); without a normalisation, x is s'.

    :param u: [.., C], as ``y``
    :param total: s; None for 0
    :param norm: the layer normalisation, or None
    :param seed: one number of the device, from which the mask follows
    """
    weight, shift, eps = (None, None, 0.0) if norm is None else (norm.weight, norm.bias, norm.eps)
    new_total, x = _AddDropped.apply(u, bias, total, y, weight, shift, seed, probability, eps)
    return new_total, x


def activate(z: Tensor, bias: Tensor, seed: Tensor, probability: float) -> Tensor:
    """Return dropout(ReLU(z + b)), [.., C]."""
    h: Tensor = _Activate.apply(z, bias, seed, probability)
    return h


class _AddDropped(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, u: Tensor, bias: Tensor, total: Tensor | None, y: Tensor, *arguments: Any
    ) -> tuple[Tensor, Tensor | None]:
        weight, shift, seed, probability, eps = arguments
        u, y, total = u.contiguous(), y.contiguous(), None if total is None else total.contiguous()
        columns, new_total, x, mean, deviation = u.size(-1), torch.empty_like(u), None, None, None
        rows, bytes_of_one = u.numel() // columns, u.numel() * u.element_size()
        if weight is not None:
            x, (mean, deviation) = torch.empty_like(u), u.new_empty(2, rows, dtype=torch.float32)
        ctx.draw, ctx.has_total = kept_numbers(probability), total is not None
        ctx.constants = {"C": columns, "BLOCK": power_of_2(columns), "num_warps": WARPS}
        moved = bytes_of_one * (2 + ctx.has_total + 2 * (weight is not None))
        tensors = u, bias, total, y, weight, shift, seed, new_total, x, mean, deviation
        kernels.launch("sublayer_kernels.add_dropped", (rows,), moved, *tensors, *ctx.draw, eps, **ctx.constants)
        ctx.save_for_backward(*((None, None) if weight is None else (y, new_total)), weight, seed, mean, deviation)
        return new_total, x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dnew_total: Tensor, dx: Tensor | None) -> tuple[Tensor | None, ...]:
        y, new_total, weight, seed, mean, deviation = ctx.saved_tensors
        dnew_total, dx = dnew_total.contiguous(), None if dx is None else dx.contiguous()
        columns, du, dy, dtotal = dnew_total.size(-1), torch.empty_like(dnew_total), None, None
        rows, bytes_of_one = du.numel() // columns, du.numel() * du.element_size()
        if weight is not None:
            dy, dtotal = torch.empty_like(du), torch.empty_like(du) if ctx.has_total else None
        sums = du.new_empty(-(-rows // ROWS), 1 if weight is None else 3, columns, dtype=torch.float32)
        moved = bytes_of_one * (2 + 4 * (dy is not None) + (dtotal is not None)) + sums.numel() * 4
        tensors = dnew_total, dx, y, new_total, weight, seed, mean, deviation, du, dtotal, dy, sums
        kernel = "sublayer_kernels.add_dropped_backward"
        kernels.launch(kernel, (len(sums),), moved, *tensors, *ctx.draw, rows, ROWS=ROWS, **ctx.constants)
        dbias, *others = _add_rows(sums, du.dtype).unbind()
        if weight is None and ctx.has_total:
            dtotal = dnew_total
        return du, dbias, dtotal, dy, *(others or (None, None)), None, None, None


class _Activate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, bias: Tensor, seed: Tensor, probability: float) -> Tensor:
        z, columns, draw = z.contiguous(), z.size(-1), kept_numbers(probability)
        h, blocks = torch.empty_like(z), -(-columns // BLOCK)
        grid, moved = (z.numel() // columns, blocks), 2 * z.numel() * z.element_size()
        ctx.scale, ctx.constants = draw[1], {"C": columns, "BLOCK": BLOCK, "num_warps": WARPS}
        tensors = z, bias, seed, h
        kernels.launch(
            "sublayer_kernels.activate", grid, moved, *tensors, *draw, COLUMNS=blocks * BLOCK, **ctx.constants
        )
        ctx.save_for_backward(h)
        return h

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dh: Tensor) -> tuple[Tensor | None, ...]:
        (h,), dh = ctx.saved_tensors, dh.contiguous()
        columns, dz = h.size(-1), torch.empty_like(h)
        rows = h.numel() // columns
        sums = h.new_empty(-(-rows // ROWS), columns, dtype=torch.float32)
        grid, moved = (len(sums), -(-columns // BLOCK)), 3 * h.numel() * h.element_size() + sums.numel() * 4
        tensors = dh, h, dz, sums
        kernels.launch(
            "sublayer_kernels.activate_backward", grid, moved, *tensors, ctx.scale, rows, ROWS=ROWS, **ctx.constants
        )
        return dz, _add_rows(sums, dz.dtype), None, None


def _add_rows(sums: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the sum of the programs' sums, [P, ..] -> [..]."""
    total = torch.empty_like(sums[0], dtype=dtype)
    constants = {"COLUMNS": total.numel(), "ROWS": 32, "BLOCK": 32, "num_warps": WARPS}
    grid, moved = (-(-total.numel() // 32),), sums.numel() * 4
    kernels.launch("sublayer_kernels.add_rows", grid, moved, sums, total, len(sums), **constants)
    return total
