"""Trainings that can be stopped at any point and go on to the same end."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ode_transformer.recipes import commands
from ode_transformer.recipes.files import place

# Flags of fairseq-train without which a training loses sentences, or goes on differently after a stop.
STEADY: dict[str, Any] = {
    "num-workers": 0,
    "data-buffer-size": 0,  # fairseq's loading thread can abort the process when training stops within an epoch
    "required-batch-size-multiple": 1,  # with fairseq's 8, batches lose sentences
    "update-epoch-batch-itr": "True",  # without it, a resumed training batches an epoch differently
}

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
) -> None:
    """Runs fairseq-train, which goes on from the last of ``checkpoints`` if they are of the same training.

    :param run: existing folder for ``train.log`` and the record of what has begun
    :param same: digest of all that makes it the same training; checkpoints of another one are replaced
    """
    begun = run / "train.begun"
    resume = begun.exists() and begun.read_text() == same
    if not resume and checkpoints.exists():
        print(f"{checkpoints}: of a training with other flags, which this one replaces", flush=True)
        shutil.rmtree(checkpoints)
    place(run, {begun.name: same}, begun.name)
    commands.run(command, run / "train.log", progress, append=resume)
