"""Flags of fairseq's commands in a YAML file: recipes, studies and the grid of GLUE.

A file from a stranger may choose what is trained, not whom the training talks to and where it writes.
"""

from __future__ import annotations

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


def _check_name(name: str) -> str:
    """Refuse a name that is such a flag or abbreviates one, as fairseq's parsers allow."""
    start = name.partition("=")[0]
    for flag, reason in REFUSED_FLAGS.items():
        if start and flag.startswith(start):
            raise ValueError(f"--{flag} {reason}")
    return name


FlagName = Annotated[str, AfterValidator(_check_name)]
FlagValue = bool | int | float | str
Flags = dict[FlagName, FlagValue]  # without the dashes
