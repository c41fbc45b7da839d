"""``ode-transformer prepare``: the data of a recipe, from raw files to fairseq's binary files."""

import argparse

from ode_transformer.cli import run_arguments
from ode_transformer.cli.run_arguments import run_options
from ode_transformer.support.errors import UserError


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
        return check_sources(None if recipe is None else recipe.corpus.sources)
    workflow.prepare(workflow.recipe_data(recipe, args.recipe, options), options)
    return 0


def check_sources(names: list[str] | None) -> int:
    """Print the answers of the addresses of these sources, or of all; return the exit status."""
    from ode_transformer.corpora.source_check import check_sources
    from ode_transformer.corpora.sources import SOURCES_FILE, read_sources, select_sources

    sources = read_sources(SOURCES_FILE)
    table, unavailable = check_sources(sources if names is None else select_sources(names, sources))
    print(table)
    if unavailable:
        print(f"\nno address gives the file of {', '.join(unavailable)}")
    return 1 if unavailable else 0
