"""The recipes of ``configs/``, by name."""

from __future__ import annotations

from pathlib import Path

from ode_transformer.support.errors import UserError
from ode_transformer.support.yaml_file import CONFIGS, find_config

# Files of other kinds in the same folder, and their readers.
OTHER_FILES = {
    "sources": "the source list of raw files",
    "glue": "the grid of ode-transformer analyse glue; of the commands for recipes, reproduce alone takes it",
}


def recipe_names() -> list[str]:
    """Return the names of all recipes."""
    return sorted(path.stem for path in CONFIGS.glob("*.yaml") if path.stem not in OTHER_FILES)


def results_name(recipe: Path) -> str | None:
    """Return how the name of a recipe's results folder begins; None if no folder can be called by its file."""
    name = recipe.stem if recipe.suffix == ".yaml" else recipe.name
    return None if name in ("", ".", "..", ".yaml") else name


def find_recipe(name: str) -> Path:
    """Return the file of a recipe, given its name in ``configs/`` or the path of a .yaml file.

    :raises UserError: there is no such recipe
    """
    if name in OTHER_FILES:
        raise UserError(f"{name}: {OTHER_FILES[name]}; recipes are {', '.join(recipe_names())}")
    return find_config(name, CONFIGS, recipe_names(), "recipe")
