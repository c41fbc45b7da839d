"""Reads the YAML recipes of ``configs/``."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from ode_transformer.errors import UserError
from ode_transformer.evaluation.metrics import PAIRED


@dataclass(frozen=True)
class QuickstartRecipe:
    """What the quickstart does for one task.

    :param packages: requirements file beside the recipe, with the wheels that hold the data
    :param arch: registered architecture
    :param minutes: budget of training
    :param average: how many of the last checkpoints are averaged
    :param metrics: keys of ``ode_transformer.evaluation.metrics.PAIRED``
    :param size: flags of fairseq-train that fit the default architecture to the corpus, not for other architectures
    :param train: flags of fairseq-train
    :param generate: flags of fairseq-generate
    :param target: default target language of a text task
    :param vocabulary: sentencepiece pieces of a text task; without it the corpus is divided into symbols already
    """

    packages: Path
    arch: str
    minutes: float
    average: int
    metrics: list[str]
    size: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)
    generate: dict[str, Any] = field(default_factory=dict)
    target: str | None = None
    vocabulary: int | None = None


def read_recipe(path: Path) -> QuickstartRecipe:
    """Reads and checks a recipe.

    :raises UserError: names the file and the key that is unknown, missing or impossible
    """
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"{path}: cannot be read as YAML: {error}") from error
    known = {entry.name for entry in fields(QuickstartRecipe)}
    if not isinstance(values, dict) or set(values) - known:
        unknown = sorted(set(values) - known) if isinstance(values, dict) else values
        raise UserError(f"{path}: unknown {unknown}; known keys are {', '.join(sorted(known))}")
    required = {entry.name for entry in fields(QuickstartRecipe) if entry.default is entry.default_factory is MISSING}
    if missing := sorted(required - set(values)):
        raise UserError(f"{path}: {', '.join(missing)} is missing")
    recipe = QuickstartRecipe(**{**values, "packages": path.parent / str(values["packages"])})
    if unknown := set(recipe.metrics) - set(PAIRED):
        raise UserError(f"{path}: unknown metrics {sorted(unknown)}; known are {', '.join(PAIRED)}")
    for name in ("minutes", "average"):
        value = getattr(recipe, name)
        if not isinstance(value, int | float) or not value > 0:
            raise UserError(f"{path}: {name} must be a positive number, not {value!r}")
    return recipe
