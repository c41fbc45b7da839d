"""``ode-transformer reproduce``: from raw files to scores beside the published ones."""

import argparse
from dataclasses import replace

from ode_transformer.cli.run_arguments import GLUE, MACHINE, PREPARATION, RESULTS, add, run_options
from ode_transformer.support.arguments import add_train_flags
from ode_transformer.support.errors import UserError
from ode_transformer.support.yaml_file import read_yaml


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``ode-transformer reproduce``."""
    add(parser, "recipe", "--arch", "--variant")
    parser.add_argument(
        "--table",
        metavar="TABLE",
        help="every system of a published table, such as 'Xu et al. 2020, Table 1', one after the other, instead of "
        "--arch; with --variant, those of this variant",
    )
    add(parser, "--systems")
    parser.add_argument(
        "--model-only",
        action="store_true",
        help="delete the checkpoints of a run once it is evaluated; its averaged model stays",
    )
    add(parser, "--seeds", "--minutes", *PREPARATION, "--average", *MACHINE, "--max-tokens", *RESULTS, "--sources")
    add_train_flags(parser)
    parser.epilog = f"{parser.epilog} RECIPE glue: pre-training and the eight tasks of GLUE."


def run(args: argparse.Namespace) -> int:
    """Prepare, train, evaluate and compare with the published results."""
    options = run_options(args)
    if args.table is not None and options.arch:
        raise UserError("--table: its systems have their own --arch")
    if args.systems and (args.table is None or args.recipe == GLUE):
        raise UserError("--systems: goes with --table of a recipe with translations or language models")
    from ode_transformer.lab.recipes.published import table_systems
    from ode_transformer.lab.recipes.recipe import check_architecture, load_recipe

    # Refused before fairseq is imported.
    if args.recipe == GLUE:
        if options.arch is not None:
            check_architecture(options.arch, "masked_lm", f"--arch {options.arch}")
        from ode_transformer.lab.glue.config import CONFIG, GlueConfig

        config = read_yaml(CONFIG, GlueConfig)
        archs = [options.arch] if args.table is None else config.systems_of(args.table)
        from ode_transformer.lab.glue import glue_command

        for arch in archs:
            glue_command.reproduce(config, replace(options, arch=arch))
        return 0
    if args.table is not None:
        systems = table_systems(args.recipe, args.table, options.variant, args.systems or ["*"])
        from ode_transformer.lab.recipes import workflow

        command = ["ode-transformer", *args.words]
        workflow.reproduce_table(args.recipe, args.table, systems, options, command)
        return 0
    recipe = load_recipe(args.recipe, options)
    from ode_transformer.lab.recipes import workflow

    data = workflow.recipe_data(recipe, args.recipe, options)
    workflow.reproduce(data, workflow.plan_experiments(recipe, data, options), options)
    return 0
