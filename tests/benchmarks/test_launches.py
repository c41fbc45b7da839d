"""The meter counts what a GPU would be given, and no recorded step needs more than it is said to need."""

import csv
from pathlib import Path

import launches
import pytest
import torch
from torch import nn

from ode_transformer.speed import kernels

FILE = Path(__file__).parents[2] / "docs" / "results" / "studies" / "launches.csv"
TOLERANCE = 0.01  # beyond it the file is written anew: python benchmarks/launches.py --csv FILE
LIMITS = list(csv.DictReader(FILE.read_text(encoding="utf-8").splitlines()))


@pytest.mark.parametrize("name", [*launches.TRAINED, *launches.SEARCHED])
def test_a_recorded_step_costs_what_the_page_says(name: str) -> None:
    limit = next(row for row in LIMITS if (row["system"], row["tokens"]) == (name, "4096"))
    cost = launches.measure(name, launches.SENTENCES["4096"]).total
    assert cost.launches == pytest.approx(int(limit["launches"]), rel=TOLERANCE)
    assert (cost.bytes + cost.product_bytes) / 1e9 == pytest.approx(float(limit["gigabytes"]), rel=TOLERANCE)
    assert cost.operations / 1e12 == pytest.approx(float(limit["teraoperations"]), rel=TOLERANCE)


@pytest.mark.parametrize(
    ("name", "launched", "gigabytes"),
    [("euler-6-recorded", 937, 15.33), ("rk2-6-recorded", 1339, 20.66), ("rk4-6-recorded", 2083, 30.20)],
)
def test_kernels_that_no_gpu_has_run_save_what_the_page_says(
    name: str, launched: int, gigabytes: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(kernels.SETTING, "loss sublayers")
    cost = launches.measure(name, launches.SENTENCES["4096"]).total
    assert cost.launches == pytest.approx(launched, rel=TOLERANCE)
    assert (cost.bytes + cost.product_bytes) / 1e9 == pytest.approx(gigabytes, rel=TOLERANCE)


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
