"""The grid that fine-tuning on GLUE searches, and the flags of all its runs: ``configs/glue.yaml``."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ode_transformer.support.errors import UserError
from ode_transformer.support.schema import Checked, Document

WHOLE = ("batch-size", "max-epoch", "seed")
# Besides the grid's own keys, what updates and warm-up are computed from and where checkpoints are looked for.
_FIXED = ("max-sentences", "max-tokens", "max-update", "update-freq", "distributed-world-size", "save-dir")


Value = bool | int | float | str


class GlueConfig(Checked):
    """
    :param grid: flags of fairseq-train with the values that are tried
    :param train: flags of every run
    """

    grid: dict[str, Annotated[list[Value], Field(min_length=1)]]
    train: dict[str, Value]


def read_config(path: Path) -> dict[str, dict[str, Any]]:
    """The grid and the flags of every run.

    :raises UserError: names the file, the line, the key and what is wrong with it
    """
    document = Document(path)
    config = document.as_part(GlueConfig)
    if absent := [key for key in (*WHOLE, "lr") if key not in config.grid]:
        raise document.error(("grid",), f"{absent[0]} is missing")
    for key, values in config.grid.items():
        for position, value in enumerate(values):
            if wrong := _wrong(key, value):
                raise document.error(("grid", key, position), f"{value!r} is {wrong}")
    return config.model_dump()


def _wrong(key: str, value: Any) -> str:
    """What is wrong with a value of the grid; empty if nothing."""
    if key in WHOLE and (type(value) is not int or value <= 0):
        return "not a whole number above 0"
    if key == "lr" and isinstance(value, str):
        return "text: YAML reads 5.0e-5 as a number, 5e-5 not"
    if key == "lr" and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
        return "not a number above 0"
    return ""


def grid_of(config: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Every combination of the grid's values."""
    grid = config["grid"]
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def check_flags(words: Sequence[str], config: dict[str, dict[str, Any]]) -> None:
    """Whether flags that are given to every run leave alone what distinguishes the runs.

    :raises UserError: names the first that does not; argparse also takes the beginning of a flag for it
    """
    fixed = [f"--{name}" for name in (*config["grid"], *_FIXED)]
    for word in words:
        name = word.partition("=")[0]
        if len(name) > 2 and (refused := [flag for flag in fixed if flag.startswith(name)]):
            raise UserError(
                f"{word} after --: {refused[0]} is set for each run, by the grid of --config and the recipe"
            )
