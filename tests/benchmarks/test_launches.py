"""The meter counts what a GPU would be given, and no recorded step needs more than it is said to need."""

import csv
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import launches
import pytest
import torch
from fairseq.optim import OPTIMIZER_REGISTRY
from torch import nn

from ode_transformer.speed import kernels

FILE = Path(__file__).parents[2] / "docs" / "results" / "studies" / "launches.csv"
TOLERANCE = 0.01  # beyond it the file is written anew: python benchmarks/launches.py --csv FILE
LIMITS = list(csv.DictReader(FILE.read_text(encoding="utf-8").splitlines()))


@pytest.mark.parametrize("limit", [row for row in LIMITS if row["tokens"] == "4096"], ids=lambda row: row["system"])
def test_a_recorded_step_costs_what_the_page_says(limit: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(kernels.SETTING, limit["kernels"])
    cost = launches.measure(limit["system"], launches.SENTENCES["4096"]).total
    assert cost.launches == pytest.approx(int(limit["launches"]), rel=TOLERANCE)
    assert (cost.bytes + cost.product_bytes) / 1e9 == pytest.approx(float(limit["gigabytes"]), rel=TOLERANCE)
    assert cost.operations / 1e12 == pytest.approx(float(limit["teraoperations"]), rel=TOLERANCE)


@pytest.mark.parametrize(("tried", "launched", "bytes_of_one"), [("", 4, 44), ("adam", 2, 28)])
def test_an_update_in_half_precision_costs_what_the_page_says(
    tried: str, launched: int, bytes_of_one: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(kernels.SETTING, tried)
    parameters = [torch.empty(300, 1000, dtype=torch.float16, device="meta").requires_grad_() for _ in range(10)]
    cfg = SimpleNamespace(lr=[1e-3], adam_betas="(0.9, 0.98)", adam_eps=1e-8, weight_decay=0.1)
    optimizer = OPTIMIZER_REGISTRY["fused_adam"](cfg, parameters)
    for parameter, part in zip(parameters, optimizer._gradients.parts, strict=True):
        parameter.grad = part
    meter = launches.Meter()
    with patch.object(optimizer, "_collect_gradients"):
        optimizer.step()
        with meter.running():
            optimizer.step(scale=2.0)
    assert meter.total.launches == launched
    assert meter.total.bytes / 3_000_000 == pytest.approx(bytes_of_one, rel=0.01)


def test_the_gradient_of_an_operator_counts_for_its_part() -> None:
    model = nn.Sequential(nn.Linear(8, 4), nn.LayerNorm(4), nn.Dropout(0.5)).half().to("meta").train()
    x = torch.empty(64, 8, dtype=torch.float16, device="meta")
    for parameter in model.parameters():
        parameter.grad = torch.empty_like(parameter)
    meter = launches.Meter()
    with meter.running():
        model[2](torch.relu(model[1](model[0](x)))).backward(torch.empty(64, 4, dtype=torch.float16, device="meta"))
    costs = meter.costs
    assert costs[launches.PRODUCTS].operations == 2 * 2 * 64 * 8 * 4  # of y, and of the weight; x has no gradient
    assert costs["biases"].launches == 2  # a sum over rows, and the counter of its blocks
    assert costs["normalisation"].launches == 1 + 2
    assert (costs["dropout"].launches, costs["dropout"].bytes) == (2, 2 * 64 * 4 * (2 + 2 + 1))
    assert (costs[launches.REST].launches, costs[launches.REST].bytes) == (2, 64 * 4 * 2 * (2 + 3))  # ReLU
    assert costs[launches.GRADIENTS].launches == 4
