"""What a training runs on, beside what fairseq and torchrun make of it."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ode_transformer.lab.recipes.machine import Machine, detect, plan_batch
from ode_transformer.lab.recipes.options import RunOptions

V100, A100, P100 = (7, 0), (8, 0), (6, 0)  # compute capabilities


@pytest.mark.parametrize(
    ("gpus", "options", "expected"),
    [
        ((), {}, Machine(0)),
        ((V100,), {}, Machine(1, "fp16")),
        ((A100,) * 8, {}, Machine(8, "fp16")),
        ((A100, P100), {}, Machine(2)),  # the oldest one decides
        ((A100, P100), {"gpus": 1}, Machine(1, "fp16")),  # fewer are the first ones
        ((A100,), {"gpus": 0, "processes": 4}, Machine(0, cpu_processes=4)),
        ((A100,), {"precision": "bf16"}, Machine(1, "bf16")),
        ((), {"gpus": 8, "dry_run": True}, Machine(8, "fp16")),  # a rehearsal for another machine
        ((A100,), {"nodes": 2, "node_rank": 1, "master": "a:1"}, Machine(1, "fp16", 2, 1, "a:1")),
    ],
)
def test_what_the_machine_has_and_the_user_chose(monkeypatch, gpus: tuple, options: dict, expected: Machine) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(gpus))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda number: gpus[number])
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=16e9))
    assert detect(RunOptions(**options), 10**6) == expected


@given(st.integers(1, 10**6), st.integers(1, 10**5), st.integers(1, 64))
def test_a_batch_has_the_tokens_of_the_recipe_up_to_rounding(tokens: int, most: int, processes: int) -> None:
    batch = plan_batch(tokens, most, processes)
    assert batch.max_tokens <= most
    assert batch.processes == processes
    assert abs(batch.tokens - tokens) <= batch.update_freq * processes / 2
    assert (batch.update_freq - 1) * processes * most < tokens  # not one step more than it takes
