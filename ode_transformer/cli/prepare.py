"""``ode-transformer prepare``: the data of a recipe, from raw files to fairseq's binary files."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ode_transformer.cli import run_arguments
from ode_transformer.cli.run_arguments import run_options
from ode_transformer.support.errors import UserError

if TYPE_CHECKING:  # pydantic takes long to import
    from ode_transformer.recipes.recipe import Recipe


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``ode-transformer prepare``."""
    run_arguments.add_recipe(parser, required=False)
    run_arguments.add_system(parser)
    run_arguments.add_preparation(parser)
    run_arguments.add_output(parser)
    parser.add_argument(
        "--check-sources",
        action="store_true",
        help="ask every address of the recipe's raw files, or without RECIPE of all, and print the answers; "
        "exit status 1 if a file has no address that gives it",
    )
    parser.epilog = f"{parser.epilog} A changed raw file or recipe prepares again what depends on it."


def run(args: argparse.Namespace) -> int:
    """Prepare the data of a recipe, or check the addresses of its raw files."""
    from ode_transformer.recipes import workflow

    options = run_options(args)
    if args.recipe is None and not args.check_sources:
        raise UserError("RECIPE is missing: a data set of configs/, such as multi30k_en_de")
    recipe = None if args.recipe is None else workflow.load_recipe(args.recipe, options)
    if args.check_sources:
        return check_sources(recipe)
    assert recipe is not None
    workflow.prepare(workflow.recipe_data(recipe, args.recipe, options), options)
    return 0


def check_sources(recipe: Recipe | None) -> int:
    """Print the answers of the addresses of a recipe's sources, or of all; return the exit status."""
    from ode_transformer.corpora.source_check import check_sources
    from ode_transformer.corpora.sources import SOURCES_FILE, Source, read_sources, select_sources

    selected = (
        read_sources(SOURCES_FILE) if recipe is None else select_sources(recipe.corpus.sources, recipe.source_list())
    )
    if not selected:
        print("no raw files: its data come from the package index, which checks their hashes")
        return 0
    table, unavailable = check_sources(
        {name: source for name, source in selected.items() if isinstance(source, Source)}
    )
    print(table)
    if unavailable:
        print(f"\nno address gives the file of {', '.join(unavailable)}")
    return 1 if unavailable else 0
