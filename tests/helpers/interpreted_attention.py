"""Attention by kernels and by formulas."""

from typing import Any

import torch
from torch import Tensor

PROBABILITY, SENTENCES, HEADS, WIDTH = 0.3, 2, 2, 40
# Type, T, S, CLIP, causal; of an encoder output if T is not S. The interpreter multiplies no bfloat16.
CASES = [
    (torch.float32, 7, 7, 0, False),
    (torch.float32, 40, 40, 3, True),  # two steps of queries
    (torch.float16, 20, 20, 3, False),
    (torch.float16, 5, 20, 0, False),
]
Case = tuple[torch.dtype, int, int, int, bool]


def tensors(case: Case, device: str = "cpu") -> dict[str, Any]:
    """Return what the kernels read, and a factor of the result."""
    dtype, queries, keys, clip, causal = case
    generator = torch.Generator().manual_seed(1)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(device, dtype).requires_grad_()

    width, is_self = HEADS * WIDTH, queries == keys
    bias = torch.zeros(SENTENCES, 1, queries if causal else 1, keys)
    bias[1, ..., -2:] = -30_000.0
    if causal:
        bias += torch.full((queries, keys), -30_000.0).triu(1)
    return {
        "projected": random(SENTENCES, queries, 3 * width if is_self else width),
        "key_value": None if is_self else random(SENTENCES, keys, 2 * width),
        "table": random(2 * clip + 1, WIDTH) if clip else None,
        "bias": bias.to(device, dtype),
        "dz": torch.randn(SENTENCES, queries, width, generator=generator).to(device),
    }


def outcome(case: Case, device: str = "cpu") -> dict[str, Any]:
    """Return the mask of dropout, [B, H, T, S], the result and the gradients."""
    from ode_transformer.speed.attention import _Attention

    _, queries, keys, *_ = case
    x, seed = tensors(case, device), torch.tensor([2**62 + 5], device=device)
    z = _Attention.apply(x["projected"], x["key_value"], x["table"], x["bias"], seed, HEADS, PROBABILITY)
    (z.float() * x["dz"]).sum().backward()
    # Equal probabilities of values that are one-hot
    values = torch.eye(keys, WIDTH, device=device).repeat(SENTENCES, 1, HEADS)
    source = torch.cat([torch.zeros_like(values), values], -1)
    query = torch.zeros(SENTENCES, queries, HEADS * WIDTH, device=device)
    kept = _Attention.apply(query, source, None, None, seed, HEADS, PROBABILITY)
    mask = kept.unflatten(-1, (HEADS, WIDTH)).transpose(1, 2)[..., :keys] > 0
    gradients = {n: y.grad.cpu() for n, y in x.items() if y is not None and y.grad is not None}
    return {"mask": mask.cpu(), "z": z.detach().cpu(), "gradients": gradients}


def assert_formula(case: Case, outcome: dict[str, Any]) -> None:
    """Compare the result and the gradients with those of the formula in double precision with the same mask."""
    dtype, queries, keys, clip, _ = case
    x = {
        n: None if y is None else y.detach().double().requires_grad_(y.requires_grad) for n, y in tensors(case).items()
    }
    q, k, v = x["projected"].chunk(3, -1) if queries == keys else (x["projected"], *x["key_value"].chunk(2, -1))
    q, k, v = (y.unflatten(-1, (HEADS, WIDTH)).transpose(1, 2) for y in (q, k, v))
    scores = q @ k.transpose(-2, -1)
    if clip:
        offsets = (torch.arange(keys) - torch.arange(queries)[:, None]).clamp(-clip, clip) + clip
        scores = scores + torch.einsum("bhtd,tsd->bhts", q, x["table"][offsets])
    p = (scores * WIDTH**-0.5 + x["bias"]).softmax(-1)
    z = (torch.where(outcome["mask"], p / (1 - PROBABILITY), 0.0) @ v).transpose(1, 2).flatten(-2)
    (z * x["dz"]).sum().backward()
    tolerance = {"rtol": 8 * torch.finfo(dtype).eps, "atol": 16 * torch.finfo(dtype).eps}
    assert outcome["z"].dtype == dtype
    torch.testing.assert_close(outcome["z"].double(), z, **tolerance)
    gradients = {n: y.grad for n, y in x.items() if y is not None and y.grad is not None}
    assert outcome["gradients"].keys() == gradients.keys()
    for name, gradient in outcome["gradients"].items():
        torch.testing.assert_close(gradient.double(), gradients[name], **tolerance)
    assert abs(1 - outcome["mask"].double().mean() - PROBABILITY) < 0.06
    rows = outcome["mask"].flatten(0, 2)[:, : min(keys, 20)].tolist()
    assert keys < 20 or len(set(map(tuple, rows))) == len(rows)
