"""What a training costs beside the GPU: a step of fairseq's trainer without its model, and the loader alone.

    python benchmarks/trainer_cost.py DATA            # a binarised folder of ``ode-transformer prepare``

The trainings are those of ``fairseq-train --cuda-graphs``, on one core and without a GPU: the model has the parameters
and modules of a base model at a width of 16, and a replay computes nothing. What remains is Python: that of fairseq,
and ours.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import wraps
from types import SimpleNamespace
from typing import Any

import torch
from fairseq import tasks
from fairseq.data.iterators import GroupedIterator
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.optim import FairseqOptimizer
from fairseq.trainer import Trainer
from fairseq_cli import train as fairseq_train
from torch import Tensor

from ode_transformer.models import adam, fairseq_parser
from ode_transformer.models.criteria import FusedCriterion
from ode_transformer.models.late_norm import LateNorm
from ode_transformer.models.ode_transformer import ODETransformerModel
from ode_transformer.speed import flat, recording
from ode_transformer.speed.recording import Compute
from ode_transformer.support.arguments import positive_int
from ode_transformer.support.commands import USER_DIR
from ode_transformer.support.tables import markdown_table

# Part of a step -> its functions; those within another one do not count for it.
PARTS: dict[str, tuple[tuple[Any, str], ...]] = {
    "fairseq: wait for the loader": ((GroupedIterator, "__next__"),),
    "fairseq: seed, model.train()": ((Trainer, "_set_seed"), (ODETransformerModel, "train")),
    "fairseq: move the batch": ((Trainer, "_prepare_sample"),),
    "fairseq: log": ((Trainer, "_reduce_and_log_stats"), (LateNorm, "read")),
    "ours: pad the batch, replay": ((FusedCriterion, "forward"),),
    "ours: attach gradients, replay backward": ((FairseqOptimizer, "backward"),),
    "ours: gradient norm, Adam, zero gradients": (
        (adam.FairseqAdam, "clip_grad_norm"),
        (adam.FairseqAdam, "step"),
        (adam.FairseqAdam, "zero_grad"),
    ),
}
REST = "fairseq: the rest of the trainer's loop"


class Clock:
    """CPU seconds of each part, which other processes change least, and the number of steps."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.steps, self.running = 0, [REST]
        self.last = time.thread_time()

    def switch(self) -> None:
        """Add the time since the last switch to the part that runs."""
        now = time.thread_time()
        self.seconds[self.running[-1]] += now - self.last
        self.last = now

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, whose time counts for a part."""

        @wraps(function)
        def run(*arguments: Any, **options: Any) -> Any:
            self.switch()
            self.running.append(part)
            try:
                return function(*arguments, **options)
            finally:
                self.switch()
                self.running.pop()

        return run


def compute_nothing(criterion: FusedCriterion, model: Any, inputs: dict[str, Tensor]) -> Any:
    """Return a loss of zero, whose gradient every parameter has."""
    loss = sum(parameter.sum() for parameter in model.parameters()) * 0.0
    return loss, {"nll_loss": loss.detach()}


class SilentRecorder:
    """Records steps whose replays compute nothing."""

    def warm_up(self, compute: Callable[[], None]) -> None:
        compute()

    def record(self, compute: Compute, keep_gradients: Callable[[], None]) -> Any:
        loss, results = compute()
        loss = loss.detach()
        return SimpleNamespace(loss=loss, results=results, size=1, forward=lambda: None, backward=lambda gradient: None)

    def free_bytes(self) -> int:
        return 1000


def train_words(data: str, max_tokens: int, epochs: int) -> list[str]:
    """Return the command line of the training."""
    sizes = [f"--{stack}-{size}" for stack in ("encoder", "decoder") for size in ("embed-dim", "ffn-embed-dim")]
    return [
        *(data, "--user-dir", str(USER_DIR.get()), "--arch", "ode_transformer_euler", "--share-all-embeddings"),
        *(word for size in sizes for word in (size, "16")),
        *("--criterion", "fused_label_smoothed_cross_entropy", "--cuda-graphs", "--optimizer", "fused_adam"),
        *("--lr", "1e-4", "--cpu", "--num-workers", "0"),
        *("--max-tokens", str(max_tokens), "--max-epoch", str(epochs), "--disable-validation", "--no-save"),
        *("--log-format", "json", "--log-interval", "100", "--required-batch-size-multiple", "1"),
    ]


def read_options(words: Sequence[str]) -> Any:
    """Return the options of a training as fairseq's configuration."""
    return convert_namespace_to_omegaconf(fairseq_parser.parse_training(words))


def measure_steps(words: Sequence[str]) -> Clock:
    """Train, and return the clock of all epochs but the first two, in which shapes come and are recorded."""
    recording.build_recorder = lambda _: SilentRecorder()  # type: ignore[assignment, return-value]
    FusedCriterion.step = compute_nothing  # type: ignore[assignment, method-assign]
    # Without a GPU PyTorch keeps a stack trace of each call of manual_seed.
    traceback.format_stack = lambda *_: []
    flat.suits = lambda device: True
    clock = Clock()
    for part, functions in PARTS.items():
        for owner, name in functions:
            setattr(owner, name, clock.timed(part, getattr(owner, name)))
    train = fairseq_train.train

    def train_epoch(cfg: Any, trainer: Any, task: Any, epoch_itr: Any) -> Any:
        begin = trainer.get_num_updates()
        if epoch_itr.next_epoch_idx == 3:
            clock.seconds.clear()
            clock.steps = 0
        clock.last = time.thread_time()
        result = train(cfg, trainer, task, epoch_itr)
        clock.switch()
        clock.steps += trainer.get_num_updates() - begin
        return result

    fairseq_train.train = train_epoch
    fairseq_train.main(read_options(words))
    return clock


def loader_speed(words: Sequence[str], workers: int) -> tuple[float, float]:
    """Return milliseconds for a batch and target tokens a second of an epoch of the loader, by the wall clock."""
    cfg = read_options(words)
    task = tasks.setup_task(cfg.task)
    task.load_dataset("train")
    max_tokens = cfg.dataset.max_tokens
    batches = task.get_batch_iterator(task.dataset("train"), max_tokens=max_tokens, seed=1, num_workers=workers)
    batches = batches.next_epoch_itr(shuffle=True)
    next(batches)  # begins the processes
    begin, number, tokens = time.perf_counter(), 0, 0
    for batch in batches:
        number, tokens = number + 1, tokens + batch["ntokens"]
    seconds = time.perf_counter() - begin
    return 1000 * seconds / number, tokens / seconds


def main(argv: Sequence[str] | None = None) -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", metavar="DATA")
    parser.add_argument("--max-tokens", type=positive_int, default=4096, metavar="N", help="default: %(default)s")
    parser.add_argument("--epochs", type=positive_int, default=4, metavar="N", help="default: %(default)s")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    words = train_words(args.data, args.max_tokens, args.epochs)
    rows = []
    for workers in (0, 1, 2):
        milliseconds, speed = loader_speed(words, workers)
        rows.append([f"{workers}", f"{milliseconds:.2f}", f"{speed:,.0f}"])
    print(markdown_table(["loader: processes", "ms a batch", "target tokens/s"], rows))
    clock = measure_steps(words)
    rows = [[part, f"{1000 * clock.seconds[part] / clock.steps:.2f}"] for part in (*PARTS, REST)]
    rows.append(["all", f"{1000 * sum(clock.seconds.values()) / clock.steps:.2f}"])
    print("\n" + markdown_table(["part of a step", "CPU ms"], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
