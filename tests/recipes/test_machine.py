"""What a training runs on, beside what fairseq and torchrun make of it."""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed.utils import infer_init_method
from hypothesis import given
from hypothesis import strategies as st

from ode_transformer.models import fairseq_parser
from ode_transformer.recipes.machine import MIN_TOKENS_PER_PROCESS, SLURM_PORT, Machine, detect, plan_batch
from ode_transformer.support import commands
from ode_transformer.support.errors import UserError

V100, A100, P100 = (7, 0), (8, 0), (6, 0)
SLURM = {"SLURM_NNODES": "2", "SLURM_NODEID": "1", "SLURM_NTASKS": "2", "SLURM_JOB_NODELIST": "node[1-2]"}
Found = Callable[..., Machine]


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Found]:
    """``detect`` on a machine with GPUs of these compute capabilities, outside of Slurm unless it is told otherwise."""

    def with_gpus(*capabilities: tuple[int, int]) -> Found:
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(capabilities))
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda number: capabilities[number])
        return lambda *args, **options: detect(*args, **({"environment": {}} | options))

    return with_gpus


# -- what is there ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("there", "gpus", "precision"),
    [
        ((), 0, "fp32"),
        ((V100,), 1, "fp16"),
        ((A100,) * 8, 8, "fp16"),
        ((P100, P100), 2, "fp32"),
        ((A100, P100), 2, "fp32"),  # the oldest one decides
    ],
)
def test_all_gpus_in_the_precision_that_all_have_cores_for(on, there, gpus: int, precision: str, capsys) -> None:
    machine = on(*there)()
    assert (machine.gpus, machine.precision, machine.processes) == (gpus, precision, max(1, gpus))
    told = "fp32: a GPU of compute capability 6.0 has no cores for fp16\n" if P100 in there else ""
    assert capsys.readouterr().out == told


def test_fewer_gpus_are_the_first_ones(on) -> None:
    assert on(A100, P100)(1) == Machine(1, "fp16")
    assert on(A100)(0) == Machine(0)


@pytest.mark.parametrize(
    ("there", "asked", "message"),
    [
        ((A100,), {"gpus": 2}, "--gpus 2: this machine has 1"),
        ((), {"gpus": 1}, "--gpus 1: this machine has 0"),
        ((), {"precision": "fp16"}, "--precision fp16: on the processor fairseq trains in fp32 only"),
        ((A100,), {"gpus": 0, "precision": "bf16"}, "--precision bf16: on the processor"),
        ((V100,), {"precision": "bf16"}, "--precision bf16: a GPU of compute capability 7.0 has no cores for it"),
        ((A100,), {"nodes": 2}, "--nodes 2: say --master HOST:PORT of the first"),
        ((), {"nodes": 2, "master": "a:1"}, "--nodes 2: several machines train on GPUs only"),
        ((A100,), {"nodes": 2, "rank": 2, "master": "a:1"}, "--node-rank 2: with --nodes 2 it is from 0 to 1"),
        ((A100,), {"rank": 1}, "--node-rank 1: with --nodes 1 it is from 0 to 0"),
        ((A100,), {"nodes": 2, "master": "a"}, "--master a: expected HOST:PORT"),
        ((A100,), {"nodes": 2, "master": ":1"}, "--master :1: expected HOST:PORT"),
        ((A100,), {"nodes": 2, "master": "a:b"}, "--master a:b: expected HOST:PORT"),
        ((A100,), {"master": "a:1"}, "--master a:1: goes with --nodes N, more than 1"),
    ],
)
def test_what_it_does_not_have_is_named(on, there, asked: dict, message: str) -> None:
    with pytest.raises(UserError, match=message.replace(".", r"\.")):
        on(*there)(**asked)


def test_a_rehearsal_may_be_for_another_machine(on) -> None:
    assert on()(8, pretend=True) == Machine(8, "fp16")
    assert on()(8, "bf16", pretend=True) == Machine(8, "bf16")
    with pytest.raises(UserError, match=r"capability 7\.0"):  # what is there is not forgotten
        on(V100)(8, "bf16", pretend=True)


def test_few_tokens_take_fewer_gpus(on, capsys) -> None:
    found = on(*[A100] * 8)
    assert found(tokens=8 * MIN_TOKENS_PER_PROCESS).gpus == 8
    assert not capsys.readouterr().out
    assert found(tokens=1000).gpus == 1000 // MIN_TOKENS_PER_PROCESS
    assert capsys.readouterr().out == "4 of the GPUs: an update has 1,000 tokens, too few to divide further\n"
    assert found(tokens=10).gpus == 1
    assert found(nodes=2, master="a:1", tokens=1000).gpus == 2  # of each
    assert on()(tokens=10).gpus == 0


# -- Slurm --------------------------------------------------------------------------------------------------------


def test_slurm_says_which_machine_this_is(on) -> None:
    machine = on(A100, A100)(environment=SLURM)
    assert machine == Machine(2, "fp16", 2, 1, slurm_port=SLURM_PORT)
    assert (machine.processes, machine.launcher()) == (4, [])
    assert machine.flags()["distributed-port"] == SLURM_PORT


@pytest.mark.parametrize(
    ("environment", "asked", "message"),
    [
        ({"SLURM_NTASKS": "4"}, {}, "Slurm has started 4 tasks for 2 machines: srun has to start one on each"),
        ({}, {"nodes": 4, "rank": 3}, "--nodes 4: Slurm has started 2; leave out --nodes and --node-rank"),
        ({}, {"gpus": 1}, "--gpus 1: under Slurm fairseq takes all 2 of a machine; ask Slurm for fewer"),
        ({}, {"tokens": 800}, "4 GPUs: an update has 800 tokens, too few; ask Slurm for 3"),
    ],
)
def test_what_fairseq_would_do_otherwise_under_slurm_is_refused(on, environment, asked: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        on(A100, A100)(environment=SLURM | environment, **asked)


def test_one_machine_of_slurm(on) -> None:
    environment = {"SLURM_NNODES": "1", "SLURM_JOB_NODELIST": "node1", "SLURM_NTASKS": "4"}
    found = on(A100, A100, A100)
    assert found(environment=environment).launcher() == [
        "torchrun",
        "--standalone",
        "--nproc-per-node=3",
        "--no-python",
    ]
    assert found(1, environment=environment).launcher() == []


# -- what fairseq makes of it -------------------------------------------------------------------------------------


def distributed(machine: Machine, on, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Namespace:
    """fairseq's own settings for the processes of a training, on a machine with two GPUs."""
    on(A100, A100)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    words = ["data", "--arch", "transformer", "--max-tokens", "1", *commands.flags(machine.flags())]
    cfg = convert_namespace_to_omegaconf(fairseq_parser.parse("fairseq-train", words)).distributed_training
    infer_init_method(cfg)
    return cfg


def test_fairseq_starts_a_process_for_each_gpu_of_one_machine(on, monkeypatch) -> None:
    cfg = distributed(Machine(2, "fp16"), on, {}, monkeypatch)
    assert (cfg.distributed_world_size, cfg.distributed_num_procs, cfg.distributed_no_spawn) == (2, 2, False)
    assert cfg.distributed_init_method.startswith("tcp://localhost:")


@pytest.mark.parametrize("machine", [Machine(0), Machine(1, "fp16")])
def test_one_process_needs_no_others(on, machine: Machine, monkeypatch) -> None:
    cfg = distributed(machine, on, {}, monkeypatch)
    assert (cfg.distributed_world_size, cfg.distributed_init_method) == (1, None)
    assert machine.flags()["cpu"] is (machine.gpus == 0)


@pytest.mark.parametrize("slurm", [{}, SLURM])
def test_fairseq_takes_its_place_among_the_processes_of_torchrun(on, slurm: dict, monkeypatch) -> None:
    environment = {"MASTER_ADDR": "a", "MASTER_PORT": "1", "WORLD_SIZE": "4", "RANK": "3"} | slurm
    cfg = distributed(Machine(2, "fp16", 2, 1, "a:1"), on, environment, monkeypatch)
    assert (cfg.distributed_world_size, cfg.distributed_rank, cfg.device_id) == (4, 3, 1)
    assert (cfg.distributed_init_method, cfg.distributed_no_spawn) == ("env://", True)


def test_fairseq_under_slurm_starts_a_process_for_each_gpu(on, monkeypatch, tmp_path: Path) -> None:
    scontrol = tmp_path / "scontrol"
    scontrol.write_text("#!/bin/sh\necho node1; echo node2\n")
    scontrol.chmod(0o755)
    machine = on(A100, A100)(environment=SLURM)
    cfg = distributed(machine, on, SLURM | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}, monkeypatch)
    assert cfg.distributed_init_method == f"tcp://node1:{SLURM_PORT}"
    assert (cfg.distributed_world_size, cfg.distributed_rank) == (4, 2)  # of the first process of this machine
    assert (cfg.distributed_num_procs, cfg.distributed_no_spawn) == (2, False)
    assert machine.processes == cfg.distributed_world_size


@pytest.mark.slow
def test_torchrun_starts_what_is_in_this_environment(tmp_path: Path, monkeypatch) -> None:
    """Two machines, played by two commands on this one, with torchrun as it is and a stand-in for what it starts."""
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
    machines = [Machine(2, "fp16", 2, rank, f"localhost:{port}") for rank in (0, 1)]
    second = subprocess.Popen([torchrun, *machines[1].launcher()[1:], program, "data"])
    commands.run([*machines[0].launcher(), "fairseq-train", "data"], tmp_path / "log")
    assert second.wait(timeout=60) == 0
    assert {(tmp_path / str(rank)).read_text() for rank in range(4)} == {"4 ['data']"}


# -- batches ------------------------------------------------------------------------------------------------------


@given(st.integers(1, 10**6), st.integers(1, 10**5), st.integers(1, 64))
def test_a_batch_has_the_tokens_of_the_recipe_up_to_rounding(tokens: int, most: int, processes: int) -> None:
    batch = plan_batch(tokens, most, processes)
    assert batch.max_tokens <= most
    assert batch.processes == processes
    assert abs(batch.tokens - tokens) <= batch.update_freq * processes / 2
    assert (batch.update_freq - 1) * processes * most < tokens  # not one step more than it takes


def test_the_papers_batch_on_other_machines() -> None:
    assert [plan_batch(65_536, 4096, processes).flags() for processes in (8, 1, 3)] == [
        {"max-tokens": 4096, "update-freq": 2},
        {"max-tokens": 4096, "update-freq": 16},
        {"max-tokens": 3641, "update-freq": 6},
    ]
    assert str(plan_batch(8192, 4096, 1)) == "8,192 tokens an update: 4,096 x 2 steps x 1 process"
