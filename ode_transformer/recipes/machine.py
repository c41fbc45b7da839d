"""What a training runs on, as flags of fairseq-train, and the batch that makes the recipe's out of it."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ode_transformer.support.errors import UserError

PRECISIONS = ("fp32", "fp16", "bf16")
# NVIDIA's compute capabilities: the first with cores for a precision
FP16_SINCE = (7, 0)
BF16_SINCE = (8, 0)
SLURM_PORT = 12355
# Of a process at a time: longer sentences are left out of training.
FEWEST_TOKENS = 250


def on_gpu() -> bool:
    return torch.cuda.is_available()


@dataclass(frozen=True)
class Machine:
    """
    :param gpus: of each node; 0: the processor
    :param precision: of the training's arithmetic
    :param nodes: machines that train together
    :param rank: which of them this is, from 0 on
    :param master: HOST:PORT of the first, where the nodes are started by hand
    :param slurm_port: where Slurm starts them
    :param standalone: torchrun starts the processes of the only node: within Slurm fairseq would take all its GPUs, and
        wait for tasks that Slurm has not started
    """

    gpus: int
    precision: str = "fp32"
    nodes: int = 1
    rank: int = 0
    master: str | None = None
    slurm_port: int | None = None
    standalone: bool = False

    @property
    def processes(self) -> int:
        return max(1, self.gpus) * self.nodes

    def flags(self) -> dict[str, Any]:
        """Of fairseq-train; on several nodes started by hand each process is one of torchrun's."""
        return {
            "cpu": self.gpus == 0,
            "distributed-world-size": self.processes,
            "distributed-port": self.slurm_port,
            self.precision: self.precision != "fp32",
        }

    def __str__(self) -> str:
        where = f"{self.gpus} GPU{'s' if self.gpus > 1 else ''}" if self.gpus else "the processor"
        return f"{self.precision} on {where}" + (f" of each of {self.nodes} machines" if self.nodes > 1 else "")

    def launcher(self) -> list[str]:
        """The words before ``fairseq-train``."""
        if self.standalone:
            return ["torchrun", "--standalone", f"--nproc-per-node={self.gpus}", "--no-python"]
        if self.master is None:
            return []
        host, _, port = self.master.rpartition(":")
        options = {
            "nnodes": self.nodes,
            "nproc-per-node": self.gpus,
            "node-rank": self.rank,
            "master-addr": host,
            "master-port": port,
        }
        return ["torchrun", *(f"--{name}={value}" for name, value in options.items()), "--no-python"]


def detect(
    gpus: int | None = None,
    precision: str | None = None,
    nodes: int = 1,
    rank: int = 0,
    master: str | None = None,
    tokens: int | None = None,
    longest: int = FEWEST_TOKENS,
    pretend: bool = False,
    environment: Mapping[str, str] = os.environ,
) -> Machine:
    """The machine as it is, apart from what is asked for.

    :param gpus: fewer than there are, or 0
    :param precision: instead of fp16 where all GPUs have cores for it, else fp32
    :param tokens: of an update; so few are not divided over all the GPUs
    :param longest: sentence or sample that has to fit into a process: fairseq leaves longer ones out
    :param pretend: it need not be this machine: nothing will run
    :param environment: in which Slurm says how many nodes it has started
    :raises UserError: it does not have what is asked for
    """
    there = torch.cuda.device_count()
    count = there if gpus is None else gpus
    if count > there and not pretend:
        raise UserError(f"--gpus {count}: this machine has {there}")
    slurm_nodes = int(environment.get("SLURM_NNODES", "1"))
    by_slurm = slurm_nodes > 1 and master is None
    if by_slurm:
        nodes, rank = slurm_nodes, int(environment.get("SLURM_NODEID", "0"))
        if (tasks := int(environment.get("SLURM_NTASKS", "0"))) != nodes:
            raise UserError(f"Slurm has started {tasks} tasks for {nodes} machines: srun has to start one on each")
        if count != there and not pretend:
            raise UserError(f"--gpus {count}: under Slurm fairseq takes all {there} of a machine; ask Slurm for fewer")
    if nodes > 1 and master is None and not by_slurm:
        raise UserError(f"--nodes {nodes}: say --master HOST:PORT of the first, or start this by Slurm's srun")
    if master is not None and nodes == 1:
        raise UserError(f"--master {master}: goes with --nodes N, more than 1")
    if master is not None and not (master.rpartition(":")[0] and master.rpartition(":")[2].isdecimal()):
        raise UserError(f"--master {master}: expected HOST:PORT")
    if nodes > 1 and count == 0:
        raise UserError(f"--nodes {nodes}: several machines train on GPUs only")
    if not 0 <= rank < nodes:
        raise UserError(f"--node-rank {rank}: with --nodes {nodes} it is from 0 to {nodes - 1}")
    # In a rehearsal for a machine elsewhere its GPUs are taken for ones with all cores.
    oldest = min((torch.cuda.get_device_capability(number) for number in range(min(count, there))), default=(9, 0))
    if precision is None:
        precision = "fp16" if count and oldest >= FP16_SINCE else "fp32"
        if count and precision == "fp32":
            print(f"fp32: a GPU of compute capability {oldest[0]}.{oldest[1]} has no cores for fp16", flush=True)
    if precision != "fp32" and count == 0:
        raise UserError(f"--precision {precision}: on the processor fairseq trains in fp32 only")
    if precision == "bf16" and oldest < BF16_SINCE:
        raise UserError(f"--precision bf16: a GPU of compute capability {oldest[0]}.{oldest[1]} has no cores for it")
    if tokens is not None and count * nodes > (fitting := max(1, tokens // longest)):
        if by_slurm:
            raise UserError(f"{count * nodes} GPUs: an update has {tokens:,} tokens, too few; ask Slurm for {fitting}")
        count = max(1, fitting // nodes)
        print(f"{count} of the GPUs: an update has {tokens:,} tokens, too few to divide further", flush=True)
    in_slurm = "SLURM_STEP_NODELIST" in environment or "SLURM_JOB_NODELIST" in environment  # what fairseq looks at
    alone = in_slurm and nodes == 1 and count > 1
    return Machine(count, precision, nodes, rank, master, SLURM_PORT if by_slurm else None, alone)


@dataclass(frozen=True)
class Batch:
    """Tokens of an update, divided over processes and steps.

    :param max_tokens: that one process takes at a time
    :param update_freq: how many times it does before an update
    :param processes: that do so at once
    """

    max_tokens: int
    update_freq: int
    processes: int

    @property
    def tokens(self) -> int:
        return self.max_tokens * self.update_freq * self.processes

    def flags(self) -> dict[str, int]:
        return {"max-tokens": self.max_tokens, "update-freq": self.update_freq}

    def __str__(self) -> str:
        return (
            f"{self.tokens:,} tokens an update: {self.max_tokens:,} x {self.update_freq} steps x {self.processes} "
            f"process{'es' if self.processes > 1 else ''}"
        )


def divide(tokens: int, most: int, processes: int) -> Batch:
    """The batch of so many tokens, up to rounding, in as few steps as it takes.

    :param tokens: of an update, on all processes
    :param most: that fit into one process at a time
    """
    steps = math.ceil(tokens / (processes * most))
    return Batch(round(tokens / (processes * steps)), steps, processes)
