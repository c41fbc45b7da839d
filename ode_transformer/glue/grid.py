"""Grid of fine-tuning on GLUE, and the flags of all its runs: ``configs/glue.yaml``."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ode_transformer.glue.tasks import TASKS
from ode_transformer.recipes.file_flags import FlagName, Flags, FlagValue, abbreviated_flag
from ode_transformer.support.errors import UserError
from ode_transformer.support.yaml_file import YamlSection, key_error, read_yaml

WHOLE_NUMBERS = ("batch-size", "max-epoch", "seed")
# Beside the keys of the grid: flags that change the number of updates, or where checkpoints are written.
_RESERVED = (
    *("max-sentences", "max-tokens", "max-update", "update-freq", "distributed-world-size", "save-dir"),
    *("user-dir", "task", "log-format", "log-file", "tensorboard-logdir"),
)


class PublishedGlue(YamlSection):
    """Published scores of a system on the test sets.

    :param table: paper and table
    :param system: its name in the paper
    :param arch: the architecture that stands for the system
    :param scores: metrics of each submitted file, in the order of the task's
    """

    table: str
    system: str
    arch: str
    scores: dict[str, list[float]]


class GlueConfig(YamlSection):
    """Grid and common flags.

    :param pretraining: recipe of the pre-trained model
    :param arch: architecture of the pre-trained model
    :param symmetric: tasks whose pairs have no order: in training their texts change places by chance
    :param grid: flags of fairseq-train, each with the values to try
    :param train: flags of every run
    :param expected: published scores
    """

    pretraining: str = "bert_pretraining"
    arch: str = "macaron_bert_base"
    symmetric: list[str] = []
    grid: dict[FlagName, Annotated[list[FlagValue], Field(min_length=1)]]
    train: Flags
    expected: list[PublishedGlue] = []

    def task_flags(self, name: str) -> dict[str, str]:
        """Return the flags of a task's runs beside those of all tasks."""
        return {"task": "symmetric_sentence_prediction"} if name in self.symmetric else {}

    def systems_of(self, table: str) -> list[str]:
        """Return the architectures of a published table.

        :raises UserError: no published scores are of this table
        """
        if archs := [entry.arch for entry in self.expected if entry.table == table]:
            return archs
        tables = "; ".join(dict.fromkeys(entry.table for entry in self.expected))
        raise UserError(f"--table {table}: not among the published results of glue: {tables or 'it has none'}")

    def points(self) -> list[dict[str, Any]]:
        """Return every combination of the grid's values."""
        return [dict(zip(self.grid, values, strict=True)) for values in itertools.product(*self.grid.values())]

    def check_flags(self, flags: Sequence[str]) -> None:
        """Refuse flags that would change what distinguishes the runs.

        :param flags: flags for every run, from the command line
        :raises UserError: names the first such flag; abbreviations count, because argparse accepts them
        """
        for word in flags:
            if refused := self.refused_flag(word.partition("=")[0]):
                raise UserError(
                    f"{word} after --: {refused} is set for each run, by the grid of --config and the recipe"
                )

    def refused_flag(self, flag: str) -> str | None:
        """Return the flag that a flag names or abbreviates, if its value distinguishes the runs."""
        return abbreviated_flag(flag, (f"--{name}" for name in (*self.grid, *_RESERVED))) if len(flag) > 2 else None


def read_config(path: Path) -> GlueConfig:
    """Read grid and flags.

    :raises UserError: names the file, the key and what is wrong with it
    """
    config = read_yaml(path, GlueConfig)
    if absent := [key for key in (*WHOLE_NUMBERS, "lr") if key not in config.grid]:
        raise key_error(path, ("grid",), f"{absent[0]} is missing")
    for position, name in enumerate(config.symmetric):
        if name not in TASKS or len(TASKS[name].texts) != 2:
            raise key_error(path, ("symmetric", position), f"{name} is no task with pairs")
    for key in config.train:
        if refused := config.refused_flag(f"--{key}"):
            raise key_error(path, ("train", key), f"{refused} is set for each run, by the grid and the recipe")
    for key, values in config.grid.items():
        if abbreviated_flag(key, _RESERVED):
            raise key_error(path, ("grid", key), f"--{key} is set for each run, by the recipe")
        for position, value in enumerate(values):
            if fault := _fault(key, value):
                raise key_error(path, ("grid", key, position), f"{value!r} is {fault}")
    return config


def _fault(key: str, value: Any) -> str:
    """Describe what is wrong with a value of the grid; return an empty text if nothing is."""
    if key in WHOLE_NUMBERS and (type(value) is not int or value <= 0):
        return "not a whole number above 0"
    if key == "lr" and isinstance(value, str):
        return "text: YAML reads 5.0e-5 as a number, 5e-5 not"
    if key == "lr" and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
        return "not a number above 0"
    return ""
