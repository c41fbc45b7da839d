"""Trainings that can be stopped at any point and resumed to the same result, and their progress on the terminal."""

import hashlib
import math
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from ode_transformer.checkpoints.reading import load_checkpoint, saved_updates
from ode_transformer.lab.analysis.training_log import TRAIN, UPDATES, Sample, parse_report, parse_samples
from ode_transformer.support import commands, console
from ode_transformer.support.console import print_text
from ode_transformer.support.errors import DamagedCheckpoint, UserError
from ode_transformer.support.files import atomic_write
from ode_transformer.support.jobs import Manifest

# Flags of fairseq-train that decide which sentences a batch has, also after the training has been resumed.
RESUMABLE_FLAGS: dict[str, Any] = {
    "num-workers": 0,
    "data-buffer-size": 0,
    "required-batch-size-multiple": 1,
    "update-epoch-batch-itr": "True",  # other batches in each epoch
}

# Longest sentence that fairseq's models accept, in tokens; validation refuses a sentence longer than its batches.
MAX_SENTENCE_TOKENS = 1024

MAX_NAME_LENGTH = 100  # characters of a run's folder


def run_name(arch: str, flags: Sequence[str]) -> str:
    """Return a folder name that tells a run from runs with other flags."""
    words = [re.sub(r"^--?(?=[a-zA-Z])", "", word) for word in flags]  # the sign of a negative value stays
    name = re.sub(r"[^\w.=-]+", "_", "-".join([arch, *words]))
    if len(name) > MAX_NAME_LENGTH:
        name = f"{name[:MAX_NAME_LENGTH]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return name


def require_same_training(run: Path, digest: str) -> None:
    """Refuse checkpoints of a training with another digest: it may have taken days."""
    if Manifest(run).entries().get("training") != digest:
        raise UserError(f"{run}: of a training with other flags or data, which is kept; move it away to train anew")


def train_or_resume(
    command: Sequence[str | Path],
    run: Path,
    digest: str,
    last_update: int | None = None,
    progress: Callable[[str], None] | None = None,
    threads: int | None = None,
) -> None:
    """Run fairseq-train, or resume it from its last checkpoint, unless all updates are made.

    :param run: existing folder of the manifest, the log and ``checkpoints``
    :param last_update: that ends the training, if updates end it; fairseq would make one more on resuming
    :raises UserError: the checkpoints belong to another training
    """
    checkpoints = run / "checkpoints"
    if resumes := has_checkpoints(checkpoints):
        require_same_training(run, digest)
    Manifest(run).record(training=digest)
    updates = repair_last_checkpoint(checkpoints)
    if last_update is None or updates < last_update:
        commands.run(command, run / "train.log", progress, append=resumes, threads=threads)


def has_checkpoints(checkpoints: Path) -> bool:
    """Return whether anything has been saved; fairseq makes the folder before the first update."""
    return any(checkpoints.glob("*.pt"))


def repair_last_checkpoint(checkpoints: Path) -> int:
    """Replace ``checkpoint_last.pt`` if it is torn or missing by the newest whole checkpoint; return its updates.

    fairseq copies the last checkpoint from another one, so that a stopped process can leave half of it, or none. A torn
    one that nothing can replace is set aside, and training begins anew.
    """
    last = checkpoints / "checkpoint_last.pt"
    if last.exists() and (updates := _updates(last)) is not None:
        return updates
    saved = {path: _updates(path) for path in sorted(checkpoints.glob("*.pt")) if path != last}
    readable = {path: updates for path, updates in saved.items() if updates is not None}
    if readable:
        newest = max(readable, key=lambda path: readable[path])
        print(f"{last}: {'torn' if last.exists() else 'missing'}, replaced by {newest.name}", flush=True)
        with atomic_write(last) as target, open(newest, "rb") as source:
            shutil.copyfileobj(source, target)
        return readable[newest]
    if last.exists():
        aside = last.with_suffix(".torn")
        print(f"{last}: torn, and no other checkpoint is whole: training begins anew; kept as {aside.name}", flush=True)
        os.replace(last, aside)
    return 0


def _updates(path: Path) -> int | None:
    """Return the number of updates behind a checkpoint; None if the file is torn.

    :raises UserError: it is refused, or cannot be read now: an older one would lose updates
    """
    try:
        return saved_updates(load_checkpoint(path))
    except DamagedCheckpoint:
        return None


def loss_report(line: str) -> dict[str, float]:
    """Parse the losses in a line of fairseq-train's log, of training or of the set ``valid``.

    :return: ``num_updates`` with ``valid_loss``, or with all numbers of training such as ``wall``; empty without a loss
    """
    split, numbers = parse_report(line) or ("", {})
    try:
        # null: no update since the last report was followed by layer
        values = {name: float(value) for name, value in numbers.items() if value is not None}
    except (TypeError, ValueError):  # another process wrote into the same line
        return {}
    if split not in (TRAIN, "valid") or not {UPDATES, "loss"} <= values.keys():
        return {}
    return values if split == TRAIN else {UPDATES: values[UPDATES], "valid_loss": values["loss"]}


@dataclass
class TrainingProgress:
    """The progress of a training: one line that changes on a terminal, else one in each minute or few in all.

    At the end of its ``with`` block it leaves the last numbers on a line of their own.

    :param minutes: limit of the training time; infinite if something else ends the training
    :param past_minutes: training time of the processes that were stopped before
    :param last_update: that ends the training at the latest
    :param warmup: updates of the warm-up, before whose end no training should end
    """

    minutes: float = math.inf
    past_minutes: float = 0.0
    last_update: int | None = None
    warmup: int = 0
    output: TextIO = field(default_factory=lambda: sys.stdout)

    def __post_init__(self) -> None:
        self.values: dict[str, float] = {}
        self.sample: Sample | None = None  # of the validation that is about to end
        # Seconds between two lines, without a terminal
        self.interval = 60 * (max(1.0, self.minutes / 5) if math.isfinite(self.minutes) else 1)
        self.last_line = -math.inf

    def __call__(self, line: str) -> None:
        """Show what a line of fairseq-train's log reports, if it reports a loss."""
        for sample in parse_samples(line)[:1]:
            self.sample = sample
        if not (report := loss_report(line)):
            return
        self.values |= report
        if "valid_loss" in report and self.sample is not None:
            sample, self.sample = self.sample, None
            self.output.write("\r\033[K" if self.output.isatty() else "")
            print_text(f"  {self}\n    {sample.source}\n    → {sample.output}", file=self.output)
        elif self.output.isatty():
            self.output.write(f"\r\033[K  {self}")
        elif "wall" in report and time.monotonic() - self.last_line >= self.interval:
            self.last_line = time.monotonic()
            self.output.write(f"  {self}\n")
        console.printed += 1
        self.output.flush()

    def __enter__(self) -> "TrainingProgress":
        return self

    def __exit__(self, *_: object) -> None:
        updates, last = self.values.get(UPDATES, math.inf), self.last_update or 0
        if self.values:
            self.output.write("\n" if self.output.isatty() else f"  {self}\n")
        if updates < last and self.past >= 0.99 * self.minutes:
            self.output.write(f"stopped by --minutes after {updates:,.0f} of {last:,} updates: {updates / last:.0%}\n")
        if updates < self.warmup:
            text = f"within its warm-up of {self.warmup} updates: train longer"
            self.output.write(f"warning: training ended at update {updates:.0f}, {text}\n")
        self.output.flush()

    @property
    def past(self) -> float:
        return self.past_minutes + self.values.get("wall", 0.0) / 60

    @property
    def remaining(self) -> float:
        """Minutes until the limit of time, or until the last update at the present speed; infinite if unknown."""
        limits = [self.minutes - self.past]
        if self.last_update is not None and self.values.get("ups"):
            limits.append((self.last_update - self.values["num_updates"]) / self.values["ups"] / 60)
        return max(0.0, min(limits))

    def __str__(self) -> str:
        of_all = "" if self.last_update is None else f" of {self.last_update:,}"
        formats = {
            "num_updates": "update {:,.0f}" + of_all,
            "wps": "{:,.0f} tokens/s",
            "lr": "learning rate {:.2g}",
            "loss": "loss {:.2f}",
            "valid_loss": "validation loss {:.2f}",
        }
        texts = [f"{self.remaining:.1f} minutes left"] if 0.05 <= self.remaining < math.inf else []
        texts += [text.format(self.values[name]) for name, text in formats.items() if name in self.values]
        return "  ".join(texts)
