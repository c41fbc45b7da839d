"""Recorded trainings take the updates of unrecorded ones in every precision mode and with fairseq's Adam."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.optim import OPTIMIZER_REGISTRY, FairseqOptimizer, FP16Optimizer, MemoryEfficientFP16Optimizer
from models_for_tests import small_model
from recorded_steps import build_criterion, sample_for

ADAM = {"lr": [0.01], "adam_betas": "(0.9, 0.98)", "adam_eps": 1e-4, "weight_decay": 0.1, "fp16_adam_stats": False}
SCALES = {"fp16_init_scale": 2**15, "fp16_scale_window": 2, "fp16_scale_tolerance": 0.0}
SCALES |= {"threshold_loss_scale": None, "min_loss_scale": 1e-4}


def build_optimizer(name: str, wrapper: Any, model: torch.nn.Module, dtype: torch.dtype) -> FairseqOptimizer:
    parameters = list(model.parameters())
    build, adam = OPTIMIZER_REGISTRY[name], SimpleNamespace(**ADAM)
    if wrapper is None:
        return build(adam, parameters)
    cfg: Any = SimpleNamespace(common=SimpleNamespace(bf16=dtype == torch.bfloat16, **SCALES), optimizer=None)
    if wrapper is MemoryEfficientFP16Optimizer:
        return wrapper(cfg, parameters, build(adam, parameters))
    copies = FP16Optimizer.build_fp32_params(cfg, parameters, flatten=False)
    return wrapper(cfg, parameters, build(adam, copies), copies)


def train(records: bool, name: str, wrapper: Any, dtype: torch.dtype) -> tuple[list[torch.Tensor], int, int]:
    """Train as fairseq's trainer does; return the parameters, the replays, and the overflows of the loss scale."""
    model = small_model().to(dtype).train()
    optimizer = build_optimizer(name, wrapper, model, dtype)
    criterion = build_criterion("", cuda_graphs=True)
    replays = overflows = 0
    for number in range(8):
        optimizer.zero_grad()
        sizes = 0
        for part in (0, 2):  # two batches of one shape
            loss, size, log = criterion(model, sample_for("", number + part))
            if not records:
                criterion.recorded.recorder = None
            optimizer.backward(loss)
            sizes += size
            replays += log["graph_replays"]
        optimizer.multiply_grads(1 / sizes)
        try:
            optimizer.clip_grad_norm(1.0)
            optimizer.step()
        except OverflowError:
            overflows += 1
            optimizer.zero_grad()
    return [p.detach().float() for p in model.parameters()], replays, overflows


@pytest.mark.parametrize("name", ["fused_adam", "adam"])
@pytest.mark.parametrize(
    ("wrapper", "dtype"),
    [
        (None, torch.float32),
        *((w, d) for w in (FP16Optimizer, MemoryEfficientFP16Optimizer) for d in (torch.float16, torch.bfloat16)),
    ],
)
def test_updates_are_those_of_unrecorded_steps(name: str, wrapper: Any, dtype: torch.dtype) -> None:
    recorded, replays, overflows = train(True, name, wrapper, dtype)
    unrecorded, none, as_many = train(False, name, wrapper, dtype)
    assert (replays, none) == (15, 0)
    assert overflows == as_many
    assert (overflows > 0) == (dtype == torch.float16)
    torch.testing.assert_close(recorded, unrecorded, rtol=0, atol=0)
