"""Linear map y = x Wᵀ + b, on processors of AMD with AVX-512 by oneDNN.

PyTorch multiplies float32 matrices by MKL, which does not use AVX-512 there, and contains oneDNN, which does: a step of
training base takes half the time (docs/results/speed.md). On other processors MKL is as fast or faster.
``torch.backends.mkldnn.flags(enabled=False)`` leaves everything to MKL.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn


def _is_amd_with_avx512() -> bool:
    processors = Path("/proc/cpuinfo")
    has_avx512 = torch.backends.cpu.get_cpu_capability() == "AVX512"
    return has_avx512 and processors.exists() and "AuthenticAMD" in processors.read_text(encoding="utf-8")


ONEDNN_LINEAR: Any = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if _is_amd_with_avx512() else None


class Linear(nn.Linear):
    """PyTorch's linear map, [.., input_dim] -> [.., dim], computed by :func:`linear_map`."""

    def forward(self, x: Tensor) -> Tensor:
        return linear_map(x, self.weight, self.bias)


def linear(input_dim: int, dim: int) -> Linear:
    """Build a linear map, [.., input_dim] -> [.., dim], with Xavier's weights (Glorot and Bengio 2010) and bias 0."""
    module = Linear(input_dim, dim)
    nn.init.xavier_uniform_(module.weight)
    nn.init.zeros_(module.bias)
    return module


def linear_map(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x Wᵀ + b, [.., input_dim] -> [.., dim], for W [dim, input_dim] and b [dim], or 0 if None."""
    if not _suits_onednn(x, weight):
        return nn.functional.linear(x, weight, bias)
    if not torch.is_grad_enabled():
        return _multiply(x, weight, bias)
    # In rows, since PyTorch refuses to change in place a view that such a function has made.
    rows: Tensor = _OneDNNLinear.apply(x.reshape(-1, x.size(-1)), weight, bias)
    return rows.view(*x.shape[:-1], weight.size(0))


def _suits_onednn(x: Tensor, weight: Tensor) -> bool:
    return (
        ONEDNN_LINEAR is not None
        and x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and bool(torch.backends.mkldnn.enabled)
        and not torch.is_autocast_enabled("cpu")
    )


def _multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    y: Tensor = ONEDNN_LINEAR(x, weight, bias, "none", [], "")
    return y


class _OneDNNLinear(torch.autograd.Function):
    """x Wᵀ + b of rows, [R, input_dim] -> [R, dim], by oneDNN, whose own operator has no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _multiply(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        needs_dx, needs_dweight, needs_dbias = ctx.needs_input_grad
        (dy,) = gradients  # [R, dim]
        return (
            linear_map(dy, weight.t()) if needs_dx else None,
            _weight_gradient(dy, x) if needs_dweight else None,
            dy.sum(0) if needs_dbias else None,
        )


def _weight_gradient(dy: Tensor, x: Tensor) -> Tensor:
    """Return dyᵀ x, [R, dim] and [R, input_dim] -> [dim, input_dim].

    oneDNN's operator copies a transposed first factor; the other way round, x and the result are copied.
    """
    if dy.numel() > x.numel() + dy.size(1) * x.size(1):
        return linear_map(x.t(), dy.t()).t().contiguous()
    return linear_map(dy.t(), x.t())
