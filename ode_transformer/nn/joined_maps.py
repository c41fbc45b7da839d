"""Linear maps of one input, normalised before, as a single product of matrices.

    [y_1; …; y_n] = [W_1; …; W_n] LN(x) + [b_1; …; b_n]

The maps keep their own parameters, names and gradients. Their numbers lie side by side in memory, as those of
PyTorch's recurrent networks do, so that the joined matrix is a view and no call copies it.

A scheme with several stages uses the parameters of a layer several times in a step, and autograd would add the
gradients of every use by one operator for each parameter. Here each use passes the parameters on to the next: the
gradients come back from the last use to the first, and each adds its part in the operators that compute it.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ode_transformer.nn.linear import Linear, linear_map, weight_gradient

# Parameters as their next use in a step reads them, by the module that they belong to.
PassedParameters = dict[nn.Module, tuple[Tensor, ...]]


def joined(parameters: Sequence[Tensor]) -> Tensor:
    """Return parameters [m_i, ..] as one tensor [Σ m_i, ..] without a gradient, a view of them where that can be.

    Parameters that do not lie side by side, as after they were moved or converted, are moved there first.
    """
    if len(parameters) == 1:
        return parameters[0].detach()
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


def apply_maps(
    x: Tensor,
    maps: Sequence[Linear],
    norm: nn.Module | None = None,
    heads: int | None = None,
    passed: PassedParameters | None = None,
) -> tuple[Tensor, ...]:
    """Return the maps of LN(x), [.., T, dim] each, or [.., H, T, dim/H] where they are divided into heads.

    :param x: [.., T, input_dim]
    :param norm: layer normalisation; None for none
    :param heads: H; None to divide nothing, which only a single map allows
    :param passed: of a step that uses the maps several times
    """
    joins = torch.is_grad_enabled() and not torch.compiler.is_compiling() and type(maps[0]) is Linear
    if norm is not None and (
        not joins or torch.is_autocast_enabled(x.device.type) or not isinstance(norm, nn.LayerNorm)
    ):
        x, norm = norm(x), None  # autocast chooses a precision for each operator
    if not joins or (norm is None and heads is None and passed is None):
        separate = tuple(p(x) for p in maps)
        return separate if heads is None else tuple(y.unflatten(-1, (heads, -1)).transpose(-3, -2) for y in separate)
    affine = (None, None) if norm is None else (norm.weight, norm.bias)
    parameters = (*affine, *(p.weight for p in maps), *(p.bias for p in maps))
    if passed is not None:
        parameters = passed.get(maps[0], parameters)
    eps = None if norm is None else norm.eps
    outputs: tuple[Tensor, ...] = _JoinedMaps.apply(x, len(maps), heads, eps, passed is not None, *parameters)
    if passed is not None:
        passed[maps[0]] = outputs[len(maps) :]
    return outputs[: len(maps)]


class _JoinedMaps(torch.autograd.Function):
    """:func:`apply_maps` by one product, followed by the parameters for their next use if it ``passes`` them.

    Parameters are gain and bias of the normalisation, then the weights, then the biases of the maps.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        maps: int,
        heads: int | None,
        eps: float | None,
        passes: bool,
        gain: Tensor | None,
        shift: Tensor | None,
        *linear: Tensor,
    ) -> tuple[Tensor | None, ...]:
        weights = linear[: len(linear) // 2]
        weight, bias = joined(weights), joined(linear[len(weights) :])
        normalized, mean, deviation = x, None, None
        if eps is not None:
            normalized, mean, deviation = torch.native_layer_norm(x, x.shape[-1:], gain, shift, eps)
        y = linear_map(normalized, weight, bias)  # [.., T, n · dim]
        # Autocast multiplies in half precision.
        ctx.save_for_backward(normalized.to(y.dtype), weight.to(y.dtype), x, mean, deviation, gain, shift)
        ctx.normalizes, ctx.heads, ctx.rows = eps is not None, heads, [len(p) for p in weights]
        ctx.set_materialize_grads(not passes)
        parts: tuple[Tensor, ...] = (y,)
        if heads is not None:
            y = y.unflatten(-1, (maps, heads, -1)).movedim(-3, 0).transpose(-3, -2)  # [n, .., H, T, dim/H]
            # On a CPU for products of matrices, which would each copy its part.
            parts = (y.contiguous() if x.device.type == "cpu" else y).unbind()
        ctx.shapes = [part.shape for part in parts]
        if not passes:
            return parts
        return *parts, *(p if p is None else p.view_as(p) for p in (gain, shift)), weight, bias

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        normalized, weight, x, mean, deviation, gain, shift = ctx.saved_tensors
        later = gradients[len(ctx.shapes) :]  # of the parameters, summed over all later uses
        parts = [
            normalized.new_zeros(shape) if part is None else part
            for part, shape in zip(gradients, ctx.shapes, strict=False)
        ]
        if ctx.heads is not None:
            parts = [torch.stack([part.transpose(-3, -2) for part in parts], dim=-3).flatten(-3)]  # [.., T, n · dim]
        rows = parts[0].reshape(-1, parts[0].size(-1))
        dx = linear_map(rows, weight.t()).view(x.shape) if ctx.normalizes or ctx.needs_input_grad[0] else None
        vectors = [rows.sum(0)]  # gradients of parameters that are vectors
        if ctx.normalizes:
            backward, wanted = torch.ops.aten.native_layer_norm_backward, [True, True, True]
            dx, *daffine = backward(dx, x, x.shape[-1:], mean, deviation, gain, shift, wanted)
            vectors = [*daffine, *vectors]
        sums = [gradient for gradient in (*later[:2], *later[3:]) if gradient is not None]
        if sums:
            torch._foreach_add_(sums, vectors)
            vectors = sums
        dweight = weight_gradient(rows, normalized.reshape(-1, normalized.size(-1)), later[2] if sums else None)
        daffine = vectors[:2] if ctx.normalizes else (None, None)
        return dx, None, None, None, None, *daffine, *dweight.split(ctx.rows), *vectors[-1].split(ctx.rows)
