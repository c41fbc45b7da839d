"""Flags of fairseq's commands in a YAML file: recipes, studies and the grid of GLUE.

A file from a stranger may choose what is trained, not whom the training talks to and where it writes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator

# Flags that report a training elsewhere, or connect to other processes and machines.
CONNECTING_FLAGS = (
    *("wandb-project", "azureml-logging", "aim-repo", "aim-run-hash", "plasma-path", "use-plasma-view"),
    *("distributed-init-method", "distributed-backend", "distributed-rank", "distributed-no-spawn"),
)
WRITING_FLAGS = ("save-dir", "log-file", "tensorboard-logdir", "results-path")
REFUSED_FLAGS = {
    **dict.fromkeys(CONNECTING_FLAGS, "connects the training to others: give it behind --, not in a file"),
    **dict.fromkeys(WRITING_FLAGS, "says where results are written, which the runner sets"),
}


def abbreviated_flag(name: str, flags: Iterable[str]) -> str | None:
    """Return the first of some flags that a name is or abbreviates, as argparse allows; None if none."""
    return next((flag for flag in flags if flag.startswith(name)), None)


def _check_name(name: str) -> str:
    start = name.partition("=")[0]
    if start and (flag := abbreviated_flag(start, REFUSED_FLAGS)):
        raise ValueError(f"--{flag} {REFUSED_FLAGS[flag]}")
    return name


FlagName = Annotated[str, AfterValidator(_check_name)]
FlagValue = bool | int | float | str
Flags = dict[FlagName, FlagValue]  # without the dashes
