"""Recorded trainings take the updates of unrecorded ones in every precision mode and with fairseq's Adam."""

from typing import Any

import pytest
import torch
from fairseq.optim import FP16Optimizer, MemoryEfficientFP16Optimizer
from models_for_tests import small_model
from recorded_steps import build_criterion, build_optimizer, sample_for


def train(records: bool, name: str, wrapper: Any, dtype: torch.dtype) -> tuple[list[torch.Tensor], int, int]:
    """Train as fairseq's trainer does; return the parameters, the replays, and the overflows of the loss scale."""
    model = small_model().to(dtype).train()
    optimizer = build_optimizer(name, wrapper, list(model.parameters()), scale=2**15, window=2)
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


@pytest.mark.parametrize(
    ("name", "wrapper", "dtype"),
    [
        ("adam", None, torch.float32),
        ("adam", FP16Optimizer, torch.float16),
        ("fused_adam", None, torch.float32),
        ("fused_adam", FP16Optimizer, torch.bfloat16),
        ("fused_adam", MemoryEfficientFP16Optimizer, torch.float16),
    ],
)
def test_updates_are_those_of_unrecorded_steps(name: str, wrapper: Any, dtype: torch.dtype) -> None:
    recorded, replays, overflows = train(True, name, wrapper, dtype)
    unrecorded, none, as_many = train(False, name, wrapper, dtype)
    assert (replays, none) == (15, 0)
    assert overflows == as_many
    assert (overflows > 0) == (dtype == torch.float16)
    torch.testing.assert_close(recorded, unrecorded, rtol=0, atol=0)
