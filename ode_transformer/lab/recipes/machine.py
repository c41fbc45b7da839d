"""The machine of a training as flags of fairseq-train, and the division of a recipe's batch over it."""

import math
from dataclasses import dataclass
from typing import Any

import torch

from ode_transformer.lab.recipes.options import RunOptions
from ode_transformer.support.errors import UserError

# Without a GPU fairseq sets nothing up among the processes that torchrun starts: these flags do.
CPU_GROUP: dict[str, Any] = {
    "distributed-init-method": "env://",
    "distributed-backend": "gloo",
    "distributed-no-spawn": True,
    "ddp-backend": "legacy_ddp",  # pytorch_ddp needs a GPU
}
FP16_SINCE = (7, 0)  # the first of NVIDIA's compute capabilities with cores for fp16
LARGE_GPU = 40e9  # bytes
# Longer sentences than a process's batch are left out of training.
MIN_TOKENS_PER_PROCESS = 250


@dataclass(frozen=True)
class Machine:
    """The processors of a training.

    :param gpus: of each node; 0 for the CPU
    :param rank: number of this machine among them, from 0
    :param master: HOST:PORT of the first of several nodes
    :param large_gpus: each GPU has at least ``LARGE_GPU`` bytes
    """

    gpus: int
    precision: str = "fp32"
    nodes: int = 1
    rank: int = 0
    master: str | None = None
    cpu_processes: int = 1
    large_gpus: bool = False

    @property
    def processes(self) -> int:
        """Number of processes on all nodes."""
        return (self.gpus or self.cpu_processes) * self.nodes

    def flags(self, own_copy: bool = False) -> dict[str, Any]:
        """Return flags of fairseq-train; torchrun starts several processes.

        :param own_copy: the optimizer itself keeps a float32 copy of half-precision parameters
        """
        return {
            "cpu": self.gpus == 0,
            "distributed-world-size": self.processes,
            self.precision: self.precision != "fp32" and not own_copy,
            f"memory-efficient-{self.precision}": self.precision != "fp32" and own_copy,
            **(CPU_GROUP if self.processes > 1 and not self.gpus else {}),
        }

    def __str__(self) -> str:
        on_cpu = f"{self.cpu_processes} processes of the CPU" if self.cpu_processes > 1 else "the processor"
        where = f"{self.gpus} GPU{'s' if self.gpus > 1 else ''}" if self.gpus else on_cpu
        return f"{self.precision} on {where}" + (f" of each of {self.nodes} machines" if self.nodes > 1 else "")

    def launcher(self) -> list[str]:
        """Return the words of the command before ``fairseq-train``.

        fairseq could start the processes of one machine itself, but within Slurm it would take all GPUs and wait for
        tasks that Slurm has not started.
        """
        if self.processes == 1:
            return []
        if self.nodes > 1:
            host, _, port = str(self.master).rpartition(":")
            group = [f"--nnodes={self.nodes}", f"--node-rank={self.rank}"]
            group += [f"--master-addr={host}", f"--master-port={port}"]
        else:
            group = ["--standalone"]
        launcher = ["torchrun", *group, f"--nproc-per-node={self.gpus or self.cpu_processes}", "--no-python"]
        # On the CPU fairseq reads the rank from its command line alone.
        own_rank = 'exec "$@" --distributed-rank "$RANK"'
        return launcher if self.gpus else [*launcher, "bash", "-c", own_rank, "rank"]


def detect(options: RunOptions, tokens: int, longest: int = MIN_TOKENS_PER_PROCESS) -> Machine:
    """Return this machine, restricted to what the user chose; a small update is not divided over all GPUs.

    :param longest: longest sentence or sample that has to fit into a process: fairseq leaves longer ones out
    :raises UserError: the machine has fewer GPUs
    """
    installed, nodes = torch.cuda.device_count(), options.nodes
    count = installed if options.gpus is None else options.gpus
    if count > installed and not options.dry_run:
        raise UserError(f"--gpus {count}: this machine has {installed}")
    used = range(min(count, installed))
    oldest = min((torch.cuda.get_device_capability(number) for number in used), default=FP16_SINCE)
    precision = options.precision or ("fp16" if count and oldest >= FP16_SINCE else "fp32")
    most, processes = max(1, tokens // (longest * nodes)), 1 if count else options.processes
    if max(count, processes) > most:
        print(f"{most} of the processes: an update has {tokens:,} tokens, too few to divide further", flush=True)
    memory = min((torch.cuda.get_device_properties(number).total_memory for number in used), default=0)
    group = nodes, options.node_rank, options.master
    return Machine(min(count, most), precision, *group, min(processes, most), memory >= LARGE_GPU)


@dataclass(frozen=True)
class Batch:
    """Tokens of an update, divided over processes and over passes of each process.

    :param max_tokens: of a pass
    :param update_freq: passes of each process before an update
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


def plan_batch(tokens: int, max_tokens: int, processes: int) -> Batch:
    """Return the batch with this number of tokens, up to rounding, in as few passes as possible.

    :param tokens: of an update, on all processes
    :param max_tokens: that fit into one process at a time
    """
    passes = math.ceil(tokens / (processes * max_tokens))
    return Batch(round(tokens / (processes * passes)), passes, processes)
