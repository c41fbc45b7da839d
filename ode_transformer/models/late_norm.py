"""Norms of gradients are read one update late on a GPU, which then never waits for Python.

fairseq's trainer reads the norm before each update and the loss after it, and prepares the next batch while the GPU has
nothing to do. Here an update whose numbers nobody looks at is given to the GPU whole: it clips by a norm that only the
GPU knows, and changes nothing if the norm is not finite. Norm and loss are read after the next backward pass has been
given to the GPU.

If the norm was not finite, both updates are taken again as fairseq takes them, from the same parameters and with the
same random numbers: it lowers the loss scale and skips the first one. So losses, scales and updates are fairseq's.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from fairseq.optim import MemoryEfficientFP16Optimizer
from fairseq.trainer import Trainer
from torch import Tensor
from torch.utils._pytree import tree_map_only

from ode_transformer.models.adam import FairseqAdam
from ode_transformer.models.fairseq_corrections.replacing import replace

_LAST_SECONDS = 60  # before --stop-time-hours, in which each norm is read at once


@dataclass
class _UnreadUpdate:
    """An update whose norm and losses are still on their way from the GPU."""

    samples: Any
    scaler: dict[str, Any]  # counters and the loss scale before the update
    norm: Tensor  # on the CPU, as what ``log`` holds, after ``event``
    log: Callable[..., Any] = lambda **_: None
    event: Any = field(default_factory=lambda: torch.cuda.Event() if torch.cuda.is_available() else None)

    def norm_is_finite(self) -> bool:
        """Wait for the update, and tell whether it has changed anything."""
        if self.event is not None:
            self.event.synchronize()
        return bool(self.norm.isfinite())


class LateNorm:
    """Reads the norms of a training late.

    :param adam: optimizer whose parameters are flat
    """

    def __init__(self, trainer: Trainer, adam: FairseqAdam) -> None:
        self.trainer, self.adam = trainer, adam
        cfg = trainer.cfg
        intervals = cfg.common.log_interval, cfg.checkpoint.save_interval_updates, cfg.dataset.validate_interval_updates
        self.intervals = [interval for interval in intervals if interval > 0]
        self.depth_interval = getattr(cfg.model, "log_depth_interval", 0)
        self.max_update, self.stop_seconds = cfg.optimization.max_update, 3600 * cfg.optimization.stop_time_hours
        self.samples: Any = None  # of the update that is being taken
        self.may_wait = False  # it may be read late
        self.unread: _UnreadUpdate | None = None
        self.overflowed: _UnreadUpdate | None = None  # one that has to be taken again

    def is_looked_at(self) -> bool:
        """Tell whether a log line, checkpoint, validation or end follows the update that begins."""
        batches, number = getattr(self.trainer, "batches", None), self.trainer.get_num_updates() + 1
        if batches is None or batches.end_of_epoch() or number >= self.max_update > 0:
            return True
        if any(number % interval == 0 for interval in self.intervals):
            return True
        if self.depth_interval and (number + 1) % self.depth_interval == 0:  # the next one reports what it sees
            return True
        return self.stop_seconds > 0 and self.trainer.cumulative_training_time() > self.stop_seconds - _LAST_SECONDS

    def take(self, step: Callable[[Any], Any], samples: Any) -> Any:
        """Take an update by fairseq's ``train_step``; return what it returns."""
        self.samples, self.may_wait = samples, not self.is_looked_at()
        output = step(samples)
        if self.overflowed is not None:
            overflowed, self.overflowed, self.may_wait = self.overflowed, None, False
            self.trainer.set_num_updates(self.trainer.get_num_updates() - 1)
            self.adam.optimizer.forget_update()
            if overflowed.scaler:
                vars(self.trainer.optimizer.scaler).update(overflowed.scaler)
            step(overflowed.samples)
            output = step(samples)
        return output

    def read(self) -> None:
        """Read the norm of the update before, and log what it has to say.

        :raises OverflowError: the norm is not finite
        """
        unread, self.unread = self.unread, None
        if unread is not None and not unread.norm_is_finite():
            self.overflowed = unread
            raise OverflowError("in the update before this one; both are taken again")
        if unread is not None:
            unread.log(grad_norm=unread.norm)

    def clip(self, clip: Callable[[float], Tensor], max_norm: float) -> Tensor:
        """Read the norm of the update before; return that of this one, or 0 if it will be read late.

        :raises OverflowError: that of the update before was not finite
        """
        self.read()
        optimizer: Any = self.trainer.optimizer
        scaler = getattr(optimizer, "scaler", None)
        factor = getattr(optimizer, "_multiply_factor", 1.0)
        if not self.may_wait or isinstance(factor, Tensor):
            return clip(max_norm)
        self.adam.is_late = True
        if scaler is None:
            norm = clip(max_norm)
        else:  # fairseq's wrapper for float16 would read the norm
            norm = factor * self.adam.clip_grad_norm(0)
            self.adam.clip_to(max_norm, norm)
        self.unread = _UnreadUpdate(self.samples, vars(scaler).copy() if scaler else {}, _to_cpu(norm))
        return torch.zeros(())

    def log(self, log: Callable[..., Any], outputs: Any, sample_size: Any, grad_norm: Tensor | None) -> Any:
        """Log an update by fairseq's ``_reduce_and_log_stats``, or keep what is logged until its norm is read."""
        if grad_norm is None or self.unread is None:
            return log(outputs, sample_size, grad_norm)
        self.unread.log = partial(log, _to_cpu(outputs), sample_size)
        if self.unread.event is not None:
            self.unread.event.record()
        return {}  # fairseq-train asks whether there is something, not what


def _to_cpu(values: Any) -> Any:
    """Begin to copy all tensors, and do not wait."""
    return tree_map_only(Tensor, lambda x: x.to("cpu", non_blocking=True), values)


def _late_norm(trainer: Trainer) -> LateNorm | None:
    """Return what reads the norms of a training late; None where each is read at once, as on a CPU."""
    if not hasattr(trainer, "late_norm"):
        optimizer = getattr(trainer, "optimizer", None)
        adam = optimizer.wrapped_optimizer if isinstance(optimizer, MemoryEfficientFP16Optimizer) else optimizer
        trainer.late_norm = None
        if (
            isinstance(adam, FairseqAdam)
            and adam.can_be_late
            and trainer.data_parallel_world_size == 1
            # A moving average would count an update that is taken again, and a quantizer replaces the optimizer.
            and not trainer.cfg.ema.store_ema
            and trainer.quantizer is None
        ):
            trainer.late_norm = LateNorm(trainer, adam)
    late_norm: LateNorm | None = trainer.late_norm
    return late_norm


@replace(Trainer, "get_train_iterator")
def _keep_batches(original: Callable[..., Any], trainer: Trainer, *arguments: Any, **options: Any) -> Any:
    """Keep the batches of the epoch, which tell when it ends."""
    trainer.batches = original(trainer, *arguments, **options)
    return trainer.batches


@replace(Trainer, "train_step")
def _take_step(original: Callable[..., Any], trainer: Trainer, samples: Any, *arguments: Any, **options: Any) -> Any:
    late = _late_norm(trainer)
    if late is None:
        return original(trainer, samples, *arguments, **options)
    return late.take(lambda samples: original(trainer, samples, *arguments, **options), samples)


@replace(Trainer, "clip_grad_norm")
def _clip(original: Callable[..., Any], trainer: Trainer, max_norm: float) -> Any:
    late = _late_norm(trainer)
    return original(trainer, max_norm) if late is None else late.clip(partial(original, trainer), max_norm)


@replace(Trainer, "_reduce_and_log_stats")
def _log(
    original: Callable[..., Any], trainer: Trainer, outputs: Any, sample_size: Any, grad_norm: Tensor | None = None
) -> Any:
    late = _late_norm(trainer)
    if late is None:
        return original(trainer, outputs, sample_size, grad_norm)
    return late.log(partial(original, trainer), outputs, sample_size, grad_norm)
