"""Kernels compute their formulas, by Triton's interpreter on a CPU, and compile for a GPU that is not there."""

import os
import subprocess
import sys
from pathlib import Path

import interpreted_adam
import interpreted_loss
import interpreted_search
import torch
from interpreter import interpreted

from ode_transformer.speed import kernels


def test_the_loss_and_its_gradient_are_those_of_the_formula() -> None:
    outcomes = interpreted(interpreted_loss.outcome, [(*case, True) for case in interpreted_loss.CASES])
    for (dtype, smoothing), (loss, nll, gradient) in zip(interpreted_loss.CASES, outcomes, strict=True):
        *expected, expected_gradient = interpreted_loss.outcome(dtype, smoothing, by_kernels=False)
        torch.testing.assert_close([loss, nll], expected, rtol=1e-6, atol=1e-5)
        torch.testing.assert_close(gradient, expected_gradient, rtol=2 * torch.finfo(dtype).eps, atol=1e-5)


def test_a_search_attends_to_rows_of_its_table_as_by_the_formula() -> None:
    outcomes = interpreted(interpreted_search.outcome, [(*case, True) for case in interpreted_search.CASES])
    for case, outcome in zip(interpreted_search.CASES, outcomes, strict=True):
        expected = interpreted_search.outcome(*case, by_kernel=False)
        tolerance = max(1e-5, 4 * torch.finfo(case[0]).eps)
        torch.testing.assert_close(outcome[:-1], expected[:-1], rtol=tolerance, atol=tolerance)
        assert torch.equal(outcome[-1], expected[-1])  # the memory


def test_an_update_by_the_kernel_is_that_of_pytorch() -> None:
    outcomes = interpreted(interpreted_adam.updates, [(dtype, True) for dtype in interpreted_adam.DTYPES])
    for dtype, ours in zip(interpreted_adam.DTYPES, outcomes, strict=True):
        theirs = interpreted_adam.updates(dtype, by_kernel=False)
        for (*rounded, a, b, m, v, n, w), expected in zip(ours, theirs, strict=True):
            torch.testing.assert_close([a, b], expected[2:4], rtol=5e-7, atol=2e-7)  # four units of the last place
            torch.testing.assert_close([m, v, n, w], expected[4:], rtol=5e-7, atol=6e-8)
            # The interpreter cuts bfloat16 off.
            step = 0 if dtype == torch.float16 else torch.finfo(dtype).eps
            torch.testing.assert_close(rounded, expected[:2], rtol=step, atol=0)
        torch.testing.assert_close(ours[2], ours[1], rtol=0, atol=0)  # an overflow changes nothing


def test_no_kernel_runs_that_no_gpu_has_tried(monkeypatch) -> None:
    monkeypatch.delenv(kernels.SETTING, raising=False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    gpu, version = torch.device("cuda"), torch.__version__.split("+")[0]
    assert not any(kernels.is_used(name, gpu) for name in kernels.TRIED)
    monkeypatch.setitem(kernels.TRIED, "loss", {(version, (9, 0))})
    assert kernels.is_used("loss", gpu)
    monkeypatch.setitem(kernels.TRIED, "loss", {(version, (8, 0)), ("2.0.0", (9, 0))})
    assert not kernels.is_used("loss", gpu)
    monkeypatch.setenv(kernels.SETTING, "compile loss")
    assert kernels.is_used("loss", gpu)
    assert not kernels.is_used("loss", torch.device("cpu"))


def test_kernels_for_hopper_spill_no_registers() -> None:
    script = Path(__file__).parents[2] / "benchmarks" / "hopper.py"
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    lines = subprocess.check_output([sys.executable, script], env=environment, text=True).splitlines()
    assert len(lines) >= 2
    assert all("'STACK': 0" in line and "'LOCAL': 0" in line for line in lines), lines
