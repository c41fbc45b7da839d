"""``ode-transformer prepare``: the data of a recipe, from raw files to fairseq's binary files."""

import argparse

from ode_transformer.cli.run_arguments import PREPARATION, RESULTS, add, run_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``ode-transformer prepare``."""
    add(parser, "recipe", "--arch", "--variant", *PREPARATION, *RESULTS)
    parser.epilog = f"{parser.epilog} A changed raw file or recipe prepares again what depends on it."


def run(args: argparse.Namespace) -> int:
    """Prepare the data of a recipe."""
    options = run_options(args)
    from ode_transformer.lab.recipes import workflow

    recipe = workflow.load_recipe(args.recipe, options)
    workflow.prepare(workflow.recipe_data(recipe, args.recipe, options), options)
    return 0
