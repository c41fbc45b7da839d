"""``fused_adam`` makes fairseq's updates, and either optimizer goes on from the other's state."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.optim import OPTIMIZER_REGISTRY, FairseqOptimizer, FP16Optimizer, MemoryEfficientFP16Optimizer

import ode_transformer.models  # noqa: F401  (registers the optimizer)

CONFIG = {"lr": [0.01], "adam_betas": "(0.9, 0.98)", "adam_eps": 1e-4, "weight_decay": 0.1, "fp16_adam_stats": False}


def optimizer(name: str, dtype: torch.dtype = torch.float32, **config: Any) -> FairseqOptimizer:
    generator = torch.Generator().manual_seed(1)
    parameters = [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in ((7, 5), (3,), ())]
    return OPTIMIZER_REGISTRY[name](SimpleNamespace(**CONFIG, **config), parameters)


def update(trained: FairseqOptimizer, count: int, begin: int = 0, max_norm: float = 1.0) -> list[float]:
    """Makes updates as fairseq's trainer does; the second parameter misses some. Returns the norms of the gradients."""
    norms = []
    for number in range(begin, begin + count):
        generator = torch.Generator().manual_seed(number)
        for index, parameter in enumerate(trained.params):
            gradient = torch.randn(parameter.shape, generator=generator).to(parameter.dtype)
            parameter.grad = None if index == 1 and number % 3 == 1 else gradient
        trained.multiply_grads(0.5)
        norms.append(float(trained.clip_grad_norm(max_norm)))
        trained.step()
        trained.zero_grad()
    return norms


def values(trained: FairseqOptimizer) -> torch.Tensor:
    return torch.cat([parameter.detach().float().flatten() for parameter in trained.params])


@pytest.mark.parametrize(("dtype", "precision"), [(torch.float32, 1e-6), (torch.bfloat16, 1e-2)])
@pytest.mark.parametrize("max_norm", [0.0, 1.0, 9.0])
def test_updates_and_norms_are_fairseqs(dtype: torch.dtype, precision: float, max_norm: float) -> None:
    ours, theirs = optimizer("fused_adam", dtype), optimizer("adam", dtype)
    assert update(ours, 9, max_norm=max_norm) == pytest.approx(update(theirs, 9, max_norm=max_norm), rel=precision)
    torch.testing.assert_close(values(ours), values(theirs), rtol=precision, atol=precision)


@pytest.mark.parametrize("names", [("adam", "fused_adam"), ("fused_adam", "adam"), ("fused_adam", "fused_adam")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_either_goes_on_from_the_state_of_the_other(names: tuple[str, str], dtype: torch.dtype) -> None:
    whole, first, second = optimizer("adam", dtype), *(optimizer(name, dtype) for name in names)
    assert type(first).__name__ == type(second).__name__  # of which fairseq makes sure
    update(whole, 8)
    update(first, 4)
    second.load_state_dict(first.state_dict(), second.optimizer_config | {"lr": 0.01})
    for mine, other in zip(second.params, first.params, strict=True):
        mine.data.copy_(other.data)
    update(second, 4, begin=4)
    precision = 1e-6 if dtype == torch.float32 else 2e-3
    torch.testing.assert_close(values(second), values(whole), rtol=precision, atol=precision)
    for state in second.state_dict()["state"].values():
        assert isinstance(state["step"], int)
        assert state["exp_avg"].dtype == torch.promote_types(dtype, torch.float32)


@pytest.mark.parametrize("wrapper", [FP16Optimizer, MemoryEfficientFP16Optimizer])
def test_half_precision_wrappers_of_fairseq(wrapper: type) -> None:
    common = {"bf16": True, "fp16_no_flatten_grads": True, "fp16_scale_window": 1, "fp16_init_scale": 1}
    cfg: Any = SimpleNamespace(common=SimpleNamespace(**common), optimizer=None)

    def wrapped(name: str) -> Any:
        inner = optimizer(name, torch.bfloat16)
        if wrapper is MemoryEfficientFP16Optimizer:
            return wrapper(cfg, list(inner.params), inner)
        parameters = list(inner.params)
        copies = FP16Optimizer.build_fp32_params(cfg, parameters, flatten=False)
        return wrapper(cfg, parameters, OPTIMIZER_REGISTRY[name](SimpleNamespace(**CONFIG), copies), copies)

    def train(trained: Any) -> torch.Tensor:
        parameters = trained.fp16_params if wrapper is FP16Optimizer else list(trained.params)
        for number in range(4):
            trained.zero_grad()
            loss = sum((p.float() - number).square().sum() for p in parameters)
            trained.backward(loss)
            trained.multiply_grads(0.25)
            trained.clip_grad_norm(1.0)
            trained.step()
        return torch.cat([p.detach().float().flatten() for p in parameters])

    torch.testing.assert_close(train(wrapped("fused_adam")), train(wrapped("adam")), rtol=1e-2, atol=1e-2)
