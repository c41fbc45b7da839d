"""Trainings that can be stopped at any point and go on to the same end."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ode_transformer.support import commands
from ode_transformer.support.checkpoint_file import load_checkpoint
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import atomic_write, write_text

# Flags of fairseq-train without which a training loses sentences, or goes on differently after a stop.
STEADY: dict[str, Any] = {
    "num-workers": 0,
    "data-buffer-size": 0,  # fairseq's loading thread can abort the process when training stops within an epoch
    "required-batch-size-multiple": 1,  # with fairseq's 8, batches lose sentences
    "update-epoch-batch-itr": "True",  # without it, a resumed training batches an epoch differently
}

BEGUN = "train.begun"  # the digest of the training that checkpoints are of
# Tokens of the longest sentence that fairseq's models take; validation refuses one that is longer than its batches.
LONGEST = 1024

MAX_NAME = 100  # characters of a run's folder


def run_name(arch: str, flags: Sequence[str]) -> str:
    """A folder's name that tells a run from runs with other flags."""
    name = re.sub(r"[^\w.=-]+", "_", "-".join([arch, *(word.strip("-") for word in flags)]))
    if len(name) > MAX_NAME:
        name = f"{name[:MAX_NAME]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return name


def train(
    command: Sequence[str | Path],
    run: Path,
    checkpoints: Path,
    same: str,
    progress: Callable[[str], None] | None = None,
    updates: int | None = None,
) -> None:
    """Runs fairseq-train, which goes on from the last of ``checkpoints`` if they are of the same training.

    :param run: existing folder for ``train.log`` and the record of what has begun
    :param same: digest of all that makes it the same training
    :param updates: where training ends; fairseq, when it goes on from there, would make one more
    :raises UserError: there are checkpoints of another training, which may have taken days
    """
    resume = has_begun(checkpoints)
    if resume:
        require_same(run, same)
    write_text(run / BEGUN, same)
    done = mended(checkpoints) if checkpoints.exists() else 0
    if updates is None or done < updates:
        commands.run(command, run / "train.log", progress, append=resume)


def has_begun(checkpoints: Path) -> bool:
    """Whether something has been saved; fairseq makes the folder before the first update."""
    return any(checkpoints.glob("*.pt"))


def require_same(run: Path, same: str) -> None:
    """
    :raises UserError: the checkpoints of a run are of another training
    """
    begun = run / BEGUN
    if not begun.exists() or begun.read_text() != same:
        raise UserError(f"{run}: of a training with other flags or data, which is kept; move it away to train anew")


def mended(checkpoints: Path) -> int:
    """Updates in ``checkpoint_last.pt``; one that is torn or missing is replaced by the newest other one, if any.

    fairseq copies the last checkpoint from one that is whole, so that being stopped can leave half of it, or none.
    """
    last = checkpoints / "checkpoint_last.pt"
    if last.exists() and (done := _updates(last)) is not None:
        return done
    others = {path: _updates(path) for path in sorted(checkpoints.glob("*.pt")) if path != last}
    whole = {path: made for path, made in others.items() if made is not None}
    if not whole:
        last.unlink(missing_ok=True)
        return 0
    newest = max(whole, key=lambda path: whole[path])
    print(f"{last}: {'torn' if last.exists() else 'missing'}, replaced by {newest.name}", flush=True)
    with atomic_write(last) as target, open(newest, "rb") as source:
        shutil.copyfileobj(source, target)
    return whole[newest]


def _updates(path: Path) -> int | None:
    """How many updates a checkpoint has behind it; None if it is torn."""
    try:
        return int(load_checkpoint(path)["optimizer_history"][-1]["num_updates"])
    except UserError:
        return None
