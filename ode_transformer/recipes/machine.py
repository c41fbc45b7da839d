"""The machine of a training as flags of fairseq-train, and the division of a recipe's batch over it."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ode_transformer.support.errors import UserError

# Without a GPU fairseq sets nothing up among the processes that torchrun starts: these flags do.
CPU_GROUP: dict[str, Any] = {
    "distributed-init-method": "env://",
    "distributed-backend": "gloo",
    "distributed-no-spawn": True,
    "ddp-backend": "legacy_ddp",  # pytorch_ddp needs a GPU
}
# The first of NVIDIA's compute capabilities with cores for a precision
FP16_SINCE = (7, 0)
BF16_SINCE = (8, 0)
SLURM_PORT = 12355
# Longer sentences than a process's batch are left out of training.
MIN_TOKENS_PER_PROCESS = 250


@dataclass(frozen=True)
class Machine:
    """The processors of a training.

    :param gpus: of each node; 0 for the CPU
    :param precision: of the training's arithmetic
    :param nodes: machines that train together
    :param rank: number of this machine among them, from 0
    :param master: HOST:PORT of the first node, if the nodes are started by hand
    :param slurm_port: port of the first node, if Slurm starts the nodes
    :param standalone: torchrun starts the processes of the only node: within Slurm fairseq would take all its GPUs, and
        wait for tasks that Slurm has not started
    :param cpu_processes: processes that train together on the CPU
    """

    gpus: int
    precision: str = "fp32"
    nodes: int = 1
    rank: int = 0
    master: str | None = None
    slurm_port: int | None = None
    standalone: bool = False
    cpu_processes: int = 1

    @property
    def processes(self) -> int:
        """Number of processes on all nodes."""
        return (self.gpus or self.cpu_processes) * self.nodes

    def flags(self) -> dict[str, Any]:
        """Return flags of fairseq-train; on nodes started by hand, torchrun starts the processes."""
        return {
            "cpu": self.gpus == 0,
            "distributed-world-size": self.processes,
            "distributed-port": self.slurm_port,
            self.precision: self.precision != "fp32",
            **(CPU_GROUP if self.cpu_processes > 1 else {}),
        }

    def __str__(self) -> str:
        on_cpu = f"{self.cpu_processes} processes of the CPU" if self.cpu_processes > 1 else "the processor"
        where = f"{self.gpus} GPU{'s' if self.gpus > 1 else ''}" if self.gpus else on_cpu
        return f"{self.precision} on {where}" + (f" of each of {self.nodes} machines" if self.nodes > 1 else "")

    def launcher(self) -> list[str]:
        """Return the words of the command before ``fairseq-train``."""
        if self.cpu_processes > 1:
            own_rank = 'exec "$@" --distributed-rank "$RANK"'
            start = ["torchrun", "--standalone", f"--nproc-per-node={self.cpu_processes}", "--no-python"]
            return [*start, "bash", "-c", own_rank, "rank"]
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
    longest: int = MIN_TOKENS_PER_PROCESS,
    pretend: bool = False,
    cpu_processes: int = 1,
    environment: Mapping[str, str] = os.environ,
) -> Machine:
    """Return this machine, restricted to what the user chose.

    :param gpus: number of GPUs to use; 0 for the CPU, None for all
    :param precision: None for fp16 where all GPUs have cores for it, else fp32
    :param nodes: machines that train together
    :param rank: number of this machine among them
    :param master: HOST:PORT of the first machine
    :param tokens: of an update; a small update is not divided over all GPUs
    :param longest: longest sentence or sample that has to fit into a process: fairseq leaves longer ones out
    :param pretend: describe a machine elsewhere: nothing will run
    :param cpu_processes: processes that train together on the CPU
    :param environment: variables in which Slurm gives the number of nodes that it has started
    :raises UserError: the machine does not have what the user chose
    """
    installed = torch.cuda.device_count()
    count = installed if gpus is None else gpus
    if count > installed and not pretend:
        raise UserError(f"--gpus {count}: this machine has {installed}")
    by_slurm = int(environment.get("SLURM_NNODES", "1")) > 1 and master is None
    if by_slurm:
        nodes, rank = _slurm_nodes(nodes, environment)
        if count != installed and not pretend:
            raise UserError(
                f"--gpus {count}: under Slurm fairseq takes all {installed} of a machine; ask Slurm for fewer"
            )
    _check_nodes(nodes, master, by_slurm)
    if nodes > 1 and count == 0:
        raise UserError(f"--nodes {nodes}: several machines train on GPUs only")
    if cpu_processes > 1 and count:
        raise UserError(f"--processes {cpu_processes}: of the CPU, and goes with --gpus 0")
    if not 0 <= rank < nodes:
        raise UserError(f"--node-rank {rank}: with --nodes {nodes} it is from 0 to {nodes - 1}")
    precision = _choose_precision(precision, count, min(count, installed))
    if tokens is not None and count * nodes > (fitting := max(1, tokens // longest)):
        if by_slurm:
            raise UserError(f"{count * nodes} GPUs: an update has {tokens:,} tokens, too few; ask Slurm for {fitting}")
        count = max(1, fitting // nodes)
        print(f"{count} of the GPUs: an update has {tokens:,} tokens, too few to divide further", flush=True)
    if tokens is not None and cpu_processes > (fitting := max(1, tokens // longest)):
        raise UserError(f"--processes {cpu_processes}: an update has {tokens:,} tokens, enough for {fitting}")
    in_slurm = "SLURM_STEP_NODELIST" in environment or "SLURM_JOB_NODELIST" in environment  # what fairseq looks at
    standalone = in_slurm and nodes == 1 and count > 1
    return Machine(count, precision, nodes, rank, master, SLURM_PORT if by_slurm else None, standalone, cpu_processes)


def _slurm_nodes(nodes: int, environment: Mapping[str, str]) -> tuple[int, int]:
    """Return the number of machines that Slurm has started, and the number of this one.

    :param nodes: of the user; 1 for those of Slurm
    """
    slurm_nodes = int(environment["SLURM_NNODES"])
    if nodes not in (1, slurm_nodes):
        raise UserError(f"--nodes {nodes}: Slurm has started {slurm_nodes}; leave out --nodes and --node-rank")
    if (tasks := int(environment.get("SLURM_NTASKS", "0"))) != slurm_nodes:
        raise UserError(f"Slurm has started {tasks} tasks for {slurm_nodes} machines: srun has to start one on each")
    return slurm_nodes, int(environment.get("SLURM_NODEID", "0"))


def _check_nodes(nodes: int, master: str | None, by_slurm: bool) -> None:
    """Check that several machines, and only these, are told where the first one is."""
    if nodes > 1 and master is None and not by_slurm:
        raise UserError(f"--nodes {nodes}: say --master HOST:PORT of the first, or start this by Slurm's srun")
    if master is not None and nodes == 1:
        raise UserError(f"--master {master}: goes with --nodes N, more than 1")
    if master is not None and not (master.rpartition(":")[0] and master.rpartition(":")[2].isdecimal()):
        raise UserError(f"--master {master}: expected HOST:PORT")


def _choose_precision(precision: str | None, count: int, installed: int) -> str:
    """Return the numbers of a training on GPUs, or on the CPU if there are none.

    :param precision: of the user; None for the fastest that all GPUs have cores for
    :param count: GPUs of the training
    :param installed: those of them that this machine has; one of another machine is assumed to have all cores
    """
    oldest = min((torch.cuda.get_device_capability(number) for number in range(installed)), default=(9, 0))
    if precision is None:
        precision = "fp16" if count and oldest >= FP16_SINCE else "fp32"
        if count and precision == "fp32":
            print(f"fp32: a GPU of compute capability {oldest[0]}.{oldest[1]} has no cores for fp16", flush=True)
    if precision != "fp32" and count == 0:
        raise UserError(f"--precision {precision}: on the processor fairseq trains in fp32 only")
    if precision == "bf16" and oldest < BF16_SINCE:
        raise UserError(f"--precision bf16: a GPU of compute capability {oldest[0]}.{oldest[1]} has no cores for it")
    return precision


@dataclass(frozen=True)
class Batch:
    """Tokens of an update, divided over processes and over passes of each process.

    :param max_tokens: of a pass
    :param update_freq: passes of each process before an update
    :param processes: that work at once
    """

    max_tokens: int
    update_freq: int
    processes: int

    @property
    def tokens(self) -> int:
        """Tokens of an update."""
        return self.max_tokens * self.update_freq * self.processes

    def flags(self) -> dict[str, int]:
        """Return flags of fairseq-train."""
        return {"max-tokens": self.max_tokens, "update-freq": self.update_freq}

    def __str__(self) -> str:
        return (
            f"{self.tokens:,} tokens an update: {self.max_tokens:,} x {self.update_freq} steps x {self.processes} "
            f"process{'es' if self.processes > 1 else ''}"
        )


def plan_batch(tokens: int, max_tokens: int, processes: int) -> Batch:
    """Return the batch with this number of tokens, up to rounding, in as few passes as possible.

    :param tokens: of an update, on all processes
    :param max_tokens: that fit into one process at a time
    """
    passes = math.ceil(tokens / (processes * max_tokens))
    return Batch(round(tokens / (processes * passes)), passes, processes)
