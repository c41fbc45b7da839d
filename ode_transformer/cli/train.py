"""``ode-transformer train``: an architecture with a recipe."""

import argparse

from ode_transformer.cli.run_arguments import MACHINE, RESULTS, add, run_options
from ode_transformer.support.arguments import add_train_flags, non_negative_int, positive_int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``ode-transformer train``."""
    add(parser, "recipe", "--arch", "--variant", "--seed", "--minutes", *MACHINE, "--max-tokens")
    parser.add_argument(
        "--nodes",
        type=positive_int,
        default=1,
        metavar="N",
        help="machines that train together, each started by hand with its --node-rank and one --output that all of "
        "them see",
    )
    parser.add_argument(
        "--node-rank", type=non_negative_int, default=0, metavar="R", help="number of this machine among them, from 0"
    )
    parser.add_argument("--master", metavar="HOST:PORT", help="address of the first machine")
    add(parser, *RESULTS, "--sources")
    add_train_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Train, or resume a training."""
    options = run_options(args)
    from ode_transformer.lab.recipes.recipe import load_recipe

    recipe = load_recipe(args.recipe, options)  # refuses before fairseq is imported
    from ode_transformer.lab.recipes import run_experiment, workflow

    data = workflow.recipe_data(recipe, args.recipe, options)
    (experiment,) = workflow.plan_experiments(recipe, data, options)
    run_experiment.train(experiment)
    return 0
