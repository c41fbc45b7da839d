"""The grid that fine-tuning on GLUE searches, and the flags of all its runs: ``configs/glue.yaml``."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from ode_transformer.errors import UserError

WHOLE = ("batch-size", "max-epoch", "seed")
# Besides the grid's own keys, what updates and warm-up are computed from and where checkpoints are looked for.
_FIXED = ("max-sentences", "max-tokens", "max-update", "update-freq", "distributed-world-size", "save-dir")


def read_config(path: Path) -> dict[str, dict[str, Any]]:
    """The grid and the flags of every run.

    :raises UserError: names the file, the key and what is wrong with it
    """
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"{path}: cannot be read as YAML: {error}") from error
    if not isinstance(config, dict) or set(config) != {"grid", "train"}:
        raise UserError(f"{path}: has to have 'grid' and 'train', and nothing else")
    for part, entries in config.items():
        if not isinstance(entries, dict):
            raise UserError(f"{path}: {part} has to hold flags and their values, not {entries!r}")
    if absent := [key for key in (*WHOLE, "lr") if key not in config["grid"]]:
        raise UserError(f"{path}: grid: {absent[0]} is missing")
    for key, values in config["grid"].items():
        if not isinstance(values, list) or not values:
            raise UserError(f"{path}: grid: {key} has to be a list of values, not {values!r}")
        for value in values:
            if wrong := _wrong(key, value):
                raise UserError(f"{path}: grid: {key}: {value!r} is {wrong}")
    for key, value in config["train"].items():
        if isinstance(value, list | dict):
            raise UserError(f"{path}: train: {key} has to be one value, not {value!r}")
    return config


def _wrong(key: str, value: Any) -> str:
    """What is wrong with a value of the grid; empty if nothing."""
    if key in WHOLE and (type(value) is not int or value <= 0):
        return "not a whole number above 0"
    if key == "lr" and isinstance(value, str):
        return "text: YAML reads 5.0e-5 as a number, 5e-5 not"
    if key == "lr" and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
        return "not a number above 0"
    return "not one value" if value is None or isinstance(value, list | dict) else ""


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
