"""``ode-transformer evaluate``: scores of a training."""

import argparse

from ode_transformer.cli.run_arguments import MACHINE, RESULTS, add, run_options
from ode_transformer.support.arguments import add_train_flags


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``ode-transformer evaluate``."""
    add(parser, "recipe", "--arch", "--variant", "--seed", "--average", *MACHINE, *RESULTS)
    add_train_flags(
        parser, "the flags after -- of the training: with --arch, --variant and --seed they name its folder"
    )


def run(args: argparse.Namespace) -> int:
    """Average, decode and score."""
    options = run_options(args)
    from ode_transformer.lab.recipes.recipe import load_recipe

    recipe = load_recipe(args.recipe, options)  # refuses before fairseq is imported
    from ode_transformer.lab.recipes import workflow

    data = workflow.recipe_data(recipe, args.recipe, options)
    (experiment,) = workflow.plan_experiments(recipe, data, options)
    workflow.evaluate(experiment, options)
    return 0
