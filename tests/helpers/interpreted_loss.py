"""Losses and gradients by kernels and by formulas."""

from unittest.mock import patch

import torch
from torch import Tensor

PADDING = 1
CASES = [(dtype, smoothing) for dtype in (torch.float16, torch.bfloat16, torch.float32) for smoothing in (0.0, 0.1)]


def outcome(dtype: torch.dtype, smoothing: float, by_kernels: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return losses, negative log-likelihoods and the gradient of the logits, which have two blocks of words."""
    from ode_transformer.speed import losses

    generator = torch.Generator().manual_seed(1)
    z = (3 * torch.randn(7, losses.BLOCK + 404, generator=generator)).to(dtype).requires_grad_()
    target = torch.randint(2, z.size(1), (7,), generator=generator)
    target[3] = PADDING
    with patch("ode_transformer.speed.kernels.is_used", lambda *_: by_kernels):
        loss, nll = losses.label_smoothed_cross_entropy(z * 1, target, PADDING, smoothing)
    (loss.sum() * 128).backward()
    assert z.grad is not None
    return loss.detach(), nll, z.grad
