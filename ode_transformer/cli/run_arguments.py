"""Command-line arguments that the commands of recipes and studies share."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path

from ode_transformer.recipes.options import PRECISIONS, RunOptions, recipe_names
from ode_transformer.support.arguments import non_negative_int, positive_float, positive_int, whole_numbers
from ode_transformer.support.commands import available_processors

RESUMES = "Stopped at any point, the same command continues from there."


def run_options(args: argparse.Namespace) -> RunOptions:
    """Return the run options among parsed arguments; those that a command does not have keep their defaults."""
    names = {field.name for field in fields(RunOptions)}
    return RunOptions(**{name: value for name, value in vars(args).items() if name in names})


def add_recipe(parser: argparse.ArgumentParser) -> None:
    """Declare the recipe."""
    parser.add_argument(
        "recipe",
        metavar="RECIPE",
        help="a data set of configs/, such as multi30k_en_de, or the path of a .yaml file",
    )
    parser.epilog = f"{RESUMES} Recipes: {', '.join(recipe_names())}."


def add_output(parser: argparse.ArgumentParser) -> None:
    """Declare where results go and whether anything is run."""
    parser.add_argument(
        "--output",
        type=Path,
        default=RunOptions.output,
        metavar="DIR",
        help="folder for everything (default: %(default)s)",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the commands and run none")


def add_sources(parser: argparse.ArgumentParser) -> None:
    """Declare the option that explains the flags of a training."""
    parser.add_argument(
        "--sources", action="store_true", help="with --dry-run: print where each flag of fairseq-train comes from"
    )


def add_preparation(parser: argparse.ArgumentParser) -> None:
    """Declare the options of preparation."""
    parser.add_argument(
        "--raw",
        type=Path,
        metavar="DIR",
        help="folder with the raw files, instead of downloading them (docs/data.md lists them)",
    )
    parser.add_argument(
        "--workers",
        type=positive_int,
        default=available_processors(),
        metavar="N",
        help="processes for the slow parts of preparation (default: all cores)",
    )


def add_system(parser: argparse.ArgumentParser) -> None:
    """Declare the architecture and the variant of the recipe."""
    parser.add_argument("--arch", metavar="NAME", help="registered architecture (default: the recipe's)")
    parser.add_argument("--variant", metavar="NAME", help="variant of the recipe, where a paper and its code differ")


def add_seed(parser: argparse.ArgumentParser) -> None:
    """Declare the seed of one training."""
    parser.add_argument(
        "--seed",
        dest="seeds",
        type=one_seed,
        default=RunOptions.seeds,
        metavar="S",
        help="seed of the training (default: the recipe's)",
    )


def add_seeds(parser: argparse.ArgumentParser, help_text: str, default: tuple[int | None, ...] = ()) -> None:
    """Declare the seeds of several trainings."""
    parser.add_argument("--seeds", type=whole_numbers, default=default, metavar="S,S,...", help=help_text)


def add_averaging(parser: argparse.ArgumentParser) -> None:
    """Declare the number of averaged checkpoints."""
    parser.add_argument(
        "--average", type=positive_int, metavar="N", help="average the last N checkpoints, instead of the recipe's"
    )


def add_machine(parser: argparse.ArgumentParser) -> None:
    """Declare the processors of this machine."""
    parser.add_argument(
        "--gpus", type=non_negative_int, metavar="N", help="number of GPUs of this machine (default: all; 0: the CPU)"
    )
    parser.add_argument(
        "--processes",
        type=positive_int,
        default=1,
        metavar="N",
        help="with --gpus 0: N processes of the CPU train together (default: 1, which uses all cores)",
    )
    parser.add_argument(
        "--precision",
        choices=PRECISIONS,
        help="training precision (default: fp16 if the GPUs support it)",
    )


def add_max_tokens(parser: argparse.ArgumentParser) -> None:
    """Declare the load of one process."""
    parser.add_argument(
        "--max-tokens",
        type=positive_int,
        metavar="N",
        help="tokens that one GPU takes at a time, if the recipe's number does not fit; tokens of an update stay",
    )


def add_minutes(parser: argparse.ArgumentParser) -> None:
    """Declare the limit of the training time."""
    parser.add_argument(
        "--minutes",
        type=positive_float,
        metavar="M",
        help="stop the training after M minutes, those of earlier runs included; with more it resumes",
    )


def one_seed(text: str) -> tuple[int]:
    """Parse a seed."""
    return (non_negative_int(text),)
