"""What a training runs on, beside what fairseq and torchrun make of it."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ode_transformer.lab.recipes.machine import MIN_TOKENS_PER_PROCESS, Machine, detect, plan_batch
from ode_transformer.lab.recipes.options import RunOptions
from ode_transformer.support import commands

V100, A100, P100 = (7, 0), (8, 0), (6, 0)
Detect = Callable[..., Machine]


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Detect]:
    """``detect`` on a machine with GPUs of these compute capabilities."""

    def with_gpus(*capabilities: tuple[int, int], memory: float = 16e9) -> Detect:
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(capabilities))
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda number: capabilities[number])
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=memory))
        return lambda tokens=10**6, **options: detect(RunOptions(**options), tokens)

    return with_gpus


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
def test_what_the_machine_has_and_the_user_chose(on, gpus: tuple, options: dict, expected: Machine) -> None:
    assert on(*gpus)(**options) == expected


def test_large_gpus_are_told_apart(on) -> None:
    assert [on(A100, memory=memory)().large_gpus for memory in (16e9, 80e9)] == [False, True]
    assert not on(memory=80e9)().large_gpus


def test_few_tokens_take_fewer_processes(on, capsys) -> None:
    detect_here = on(*[A100] * 8)
    assert detect_here(8 * MIN_TOKENS_PER_PROCESS).gpus == 8
    assert not capsys.readouterr().out
    assert detect_here(1000).gpus == 1000 // MIN_TOKENS_PER_PROCESS
    assert capsys.readouterr().out == "4 of the processes: an update has 1,000 tokens, too few to divide further\n"
    assert detect_here(10).gpus == 1
    assert detect_here(1000, nodes=2, master="a:1").gpus == 2  # of each
    assert on()(10, processes=4) == Machine(0)


def test_several_processes_form_a_group_on_cpus() -> None:
    several = [Machine(8, "fp16"), Machine(0, cpu_processes=2), Machine(0, nodes=2, master="a:1")]
    assert [machine.flags().get("distributed-backend") for machine in several] == [None, "gloo", "gloo"]


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [1, 2])
def test_torchrun_starts_what_is_in_this_environment(nodes: int, tmp_path: Path, monkeypatch) -> None:
    """Machines, played by commands on this one, with torchrun as it is and a stand-in for what it starts."""
    program = tmp_path / "environment" / "fairseq-train"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nimport os, sys\n"
        "rank, size = os.environ['RANK'], os.environ['WORLD_SIZE']\n"
        f"open({str(tmp_path)!r} + '/' + rank, 'w').write(f'{{size}} {{sys.argv[1:]}}')\n"
    )
    program.chmod(0o755)
    torchrun = program.with_name("torchrun")
    torchrun.symlink_to(Path(sys.executable).with_name("torchrun"))
    monkeypatch.setattr(commands.sys, "executable", str(program.with_name("python")))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # as in a shell in which the environment is not active
    port = str(29_000 + os.getpid() % 1000)
    machines = [Machine(2, "fp16", nodes, rank, f"localhost:{port}") for rank in range(nodes)]
    others = [subprocess.Popen([torchrun, *machine.launcher()[1:], program, "data"]) for machine in machines[1:]]
    commands.run([*machines[0].launcher(), "fairseq-train", "data"], tmp_path / "log")
    assert all(process.wait(timeout=60) == 0 for process in others)
    size = 2 * nodes
    assert {(tmp_path / str(rank)).read_text() for rank in range(size)} == {f"{size} ['data']"}


@given(st.integers(1, 10**6), st.integers(1, 10**5), st.integers(1, 64))
def test_a_batch_has_the_tokens_of_the_recipe_up_to_rounding(tokens: int, most: int, processes: int) -> None:
    batch = plan_batch(tokens, most, processes)
    assert batch.max_tokens <= most
    assert batch.processes == processes
    assert abs(batch.tokens - tokens) <= batch.update_freq * processes / 2
    assert (batch.update_freq - 1) * processes * most < tokens  # not one step more than it takes
