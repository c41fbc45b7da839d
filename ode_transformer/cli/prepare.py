"""``ode-transformer prepare``: the data of a recipe, from raw files to fairseq's binary files."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from ode_transformer.cli.run_arguments import PREPARATION, RESULTS, add, run_options
from ode_transformer.support.errors import UserError
from ode_transformer.support.lines import iterate_lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``ode-transformer prepare``."""
    add(parser, "recipe", nargs="?")
    add(parser, "--arch", "--variant", *PREPARATION, *RESULTS)
    parser.add_argument(
        "--check",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="instead of RECIPE: check that the files of a split, which fairseq-preprocess is to read, stay parallel",
    )
    parser.epilog = f"{parser.epilog} A changed raw file or recipe prepares again what depends on it."


def run(args: argparse.Namespace) -> int:
    """Prepare the data of a recipe, or check raw files."""
    if (args.recipe is None) == (args.check is None):
        raise UserError("expected either RECIPE or --check FILE ...")
    if args.check:
        print(f"{count_parallel_lines(args.check):,} lines each, as fairseq-preprocess counts them")
        return 0
    options = run_options(args)
    from ode_transformer.lab.recipes.recipe import load_recipe

    recipe = load_recipe(args.recipe, options)  # refuses before fairseq is imported
    from ode_transformer.lab.recipes import workflow

    workflow.prepare(workflow.recipe_data(recipe, args.recipe, options), options)
    return 0


def count_parallel_lines(paths: Sequence[Path]) -> int:
    """Return the number of lines of each file.

    :raises UserError: the numbers differ, a line is not UTF-8, or fairseq-preprocess would read it as two lines
    """
    counts = {}
    for path in paths:
        number = 0
        for number, line in enumerate(iterate_lines(path), start=1):
            if "\r" in line:
                raise UserError(
                    f"{path}: line {number} holds a carriage return, where fairseq-preprocess begins a new line, "
                    "so that all pairs behind it are shifted; tr '\\r' ' ' replaces it"
                )
        counts[path] = number
    if len(set(counts.values())) > 1:
        raise UserError(
            f"sides of different length: {', '.join(f'{path} has {count:,}' for path, count in counts.items())}"
        )
    return next(iter(counts.values()))
