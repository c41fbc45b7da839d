"""Trainings that can be stopped at any point and resumed to the same result."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fairseq.checkpoint_utils import checkpoint_paths

from ode_transformer.checkpoints.reading import load_checkpoint, saved_options, saved_updates
from ode_transformer.support import commands
from ode_transformer.support.errors import DamagedCheckpoint, UserError
from ode_transformer.support.files import atomic_write, write_text

# Without these flags of fairseq-train a training loses sentences, or differs after it has been resumed.
RESUMABLE_FLAGS: dict[str, Any] = {
    "num-workers": 0,
    "data-buffer-size": 0,  # fairseq's loading thread can abort the process when training stops within an epoch
    "required-batch-size-multiple": 1,  # with fairseq's 8, batches lose sentences
    "update-epoch-batch-itr": "True",  # without it, a resumed training batches an epoch differently
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


class TrainingRecord:
    """The record of which training a run's checkpoints belong to: a digest in ``train.begun``.

    :param run: existing folder of the run
    """

    def __init__(self, run: Path) -> None:
        self.run = run
        self.path = run / "train.begun"

    def matches(self, digest: str) -> bool:
        """Return whether the training with this digest has been started here."""
        return self.path.exists() and self.path.read_bytes() == digest.encode()

    def write(self, digest: str) -> None:
        """Record that the training with this digest is started."""
        write_text(self.path, digest)

    def require(self, digest: str) -> None:
        """Refuse checkpoints of another training, which may have taken days.

        :raises UserError: the record is missing or has another digest
        """
        if not self.matches(digest):
            raise UserError(
                f"{self.run}: of a training with other flags or data, which is kept; move it away to train anew"
            )


def train(
    command: Sequence[str | Path],
    run: Path,
    checkpoints: Path,
    digest: str,
    progress: Callable[[str], None] | None = None,
    max_update: int | None = None,
    threads: int | None = None,
) -> None:
    """Run fairseq-train, which resumes from the last checkpoint if there is one of the same training.

    :param run: existing folder for ``train.log`` and the record of the training
    :param digest: of everything that identifies the training
    :param progress: called with every line of the log
    :param max_update: last update of the training, if updates end it; fairseq would make one more on resuming
    :param threads: as for ``commands.run``
    :raises UserError: the checkpoints belong to another training
    """
    record, resume = TrainingRecord(run), has_checkpoints(checkpoints)
    if resume:
        record.require(digest)
    record.write(digest)
    updates = repair_last_checkpoint(checkpoints) if checkpoints.exists() else 0
    if max_update is None or updates < max_update:
        commands.run(command, run / "train.log", progress, append=resume, threads=threads)
    if resume:
        remove_expired_checkpoints(checkpoints)


def has_checkpoints(checkpoints: Path) -> bool:
    """Return whether anything has been saved; fairseq makes the folder before the first update."""
    return any(checkpoints.glob("*.pt"))


def repair_last_checkpoint(checkpoints: Path) -> int:
    """Replace ``checkpoint_last.pt`` if it is torn or missing by the newest whole checkpoint; return its updates.

    fairseq copies the last checkpoint from another one, and the best one before it, so that a stopped process can
    leave half of either, or none.
    """
    last = checkpoints / "checkpoint_last.pt"
    if last.exists() and (updates := _updates(last)) is not None:
        return updates
    updates_behind = {path: _updates(path) for path in sorted(checkpoints.glob("*.pt")) if path != last}
    readable = {path: updates for path, updates in updates_behind.items() if updates is not None}
    if not readable:
        if last.exists():
            aside = last.with_suffix(".torn")
            os.replace(last, aside)
            print(
                f"{last}: torn, and no other checkpoint is whole: training begins anew; kept as {aside.name}",
                flush=True,
            )
        return 0
    newest = max(readable, key=lambda path: readable[path])
    print(f"{last}: {'torn' if last.exists() else 'missing'}, replaced by {newest.name}", flush=True)
    extra = load_checkpoint(newest).get("extra_state") or {}
    if (loss := extra.get("val_loss")) is not None and loss == extra.get("best"):
        _copy(newest, checkpoints / "checkpoint_best.pt")
    _copy(newest, last)
    return readable[newest]


def _copy(checkpoint: Path, path: Path) -> None:
    if checkpoint != path:
        with atomic_write(path) as target, open(checkpoint, "rb") as source:
            shutil.copyfileobj(source, target)


def remove_expired_checkpoints(checkpoints: Path) -> None:
    """Remove what fairseq removes after it has written ``checkpoint_last.pt``, if it was stopped between the two.

    The flags that keep a number of checkpoints are those in that file, not those of the present command.
    """
    if not (last := checkpoints / "checkpoint_last.pt").exists():  # --no-last-checkpoints
        return
    state = load_checkpoint(last)
    options = saved_options(state, "checkpoint")
    within_epoch = ((state.get("extra_state") or {}).get("train_iterator") or {}).get("iterations_in_epoch")
    rules = [("keep_last_epochs", r"checkpoint(\d+)\.pt", False)]
    if within_epoch and options.get("keep_interval_updates_pattern", -1) == -1:
        rules.append(("keep_interval_updates", r"checkpoint_\d+_(\d+)\.pt", False))
    if metric := options.get("best_checkpoint_metric"):
        pattern = rf"checkpoint\.best_{re.escape(str(metric))}_(\d+\.?\d*)\.pt"
        rules.append(("keep_best_checkpoints", pattern, not options.get("maximize_best_checkpoint_metric")))
    for option, pattern, smallest_first in rules:
        paths = checkpoint_paths(str(checkpoints), pattern)  # the largest number first
        count = options.get(option)
        if isinstance(count, int) and count > 0:
            for path in (paths[::-1] if smallest_first else paths)[count:]:
                Path(path).unlink()


def _updates(path: Path) -> int | None:
    """Return the number of updates behind a checkpoint; None if the file is torn.

    :raises UserError: it is refused, or cannot be read now: an older one would lose updates
    """
    try:
        return saved_updates(load_checkpoint(path))
    except DamagedCheckpoint:
        return None
