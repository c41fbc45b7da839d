"""Command-line arguments that the commands of recipes and studies share."""

import argparse
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

from ode_transformer.lab.recipes.options import PRECISIONS, RunOptions, find_recipe, recipe_names, require_gpus
from ode_transformer.support.arguments import non_negative_int, positive_float, positive_int, whole_numbers
from ode_transformer.support.commands import available_processors

GLUE = "glue"  # the argument RECIPE that means pre-training and the tasks of GLUE
GPU_DEVICES = ("nvidia[0-9]*", "kfd", "dxg")  # of NVIDIA, of AMD, and of Windows' Linux
RESUMES = "Stopped at any point, the same command continues from there."


def split_patterns(text: str) -> list[str]:
    """Divide patterns of names, such as ``Residual,RK2, gate,RK4``, at the commas without a space behind them."""
    return re.split(r",(?!\s)", text)


ARGUMENTS: dict[str, dict[str, Any]] = {
    "recipe": {
        "metavar": "RECIPE",
        "help": f"a data set of configs/, or the path of a .yaml file: {', '.join(recipe_names())}",
    },
    "--arch": {"metavar": "NAME", "help": "registered architecture (default: the recipe's)"},
    "--variant": {"metavar": "NAME", "help": "variant of the recipe, where a paper and its code differ"},
    "--seed": {
        **{"dest": "seeds", "default": RunOptions.seeds, "metavar": "S"},
        "type": lambda text: (non_negative_int(text),),
        "help": "seed of the training (default: the recipe's)",
    },
    "--seeds": {
        **{"type": whole_numbers, "default": RunOptions.seeds, "metavar": "S,S,..."},
        "help": "a training for each seed; the mean and deviation of their scores are printed",
    },
    "--systems": {
        **{"type": split_patterns, "metavar": "PATTERN,..."},
        "help": "only the systems whose names match, such as 'RK2*'; a comma and a space belong to the name",
    },
    "--minutes": {
        **{"type": positive_float, "metavar": "M"},
        "help": "stop the training after M minutes, those of earlier runs included; with more it resumes",
    },
    "--raw": {
        **{"type": Path, "metavar": "DIR"},
        "help": "folder with the raw files, instead of downloading them (docs/data.md lists them)",
    },
    "--workers": {
        **{"type": positive_int, "default": available_processors(), "metavar": "N"},
        "help": "processes for the slow parts of preparation (default: all cores)",
    },
    "--average": {
        **{"type": positive_int, "metavar": "N"},
        "help": "average the last N checkpoints, instead of the recipe's",
    },
    "--gpus": {
        **{"type": non_negative_int, "metavar": "N"},
        "help": "number of GPUs of this machine (default: all; 0: the CPU)",
    },
    "--processes": {
        **{"type": positive_int, "default": 1, "metavar": "N"},
        "help": "with --gpus 0: N processes of the CPU train together (default: 1, which uses all cores)",
    },
    "--precision": {"choices": PRECISIONS, "help": "training precision (default: fp16 if the GPUs support it)"},
    "--max-tokens": {
        **{"type": positive_int, "metavar": "N"},
        "help": "tokens that one GPU takes at a time, if the recipe's number does not fit; tokens of an update stay",
    },
    "--output": {
        **{"type": Path, "default": RunOptions.output, "metavar": "DIR"},
        "help": "folder for everything (default: %(default)s)",
    },
    "--dry-run": {"action": "store_true", "help": "print the commands and run none"},
    "--sources": {
        "action": "store_true",
        "help": "with --dry-run: print where each flag of fairseq-train comes from",
    },
}
PREPARATION = ("--raw", "--workers")
MACHINE = ("--gpus", "--processes", "--precision")
RESULTS = ("--output", "--dry-run")


def add(parser: argparse.ArgumentParser, *names: str, **changes: Any) -> None:
    """Declare arguments of ``ARGUMENTS``.

    :param changes: settings of argparse that differ from those of the table
    """
    parser.epilog = RESUMES
    for name in names:
        parser.add_argument(name, **ARGUMENTS[name] | changes)


def run_options(args: argparse.Namespace) -> RunOptions:
    """Return the run options among parsed arguments; those that a command does not have keep their defaults."""
    names = {field.name for field in fields(RunOptions)}
    options = RunOptions(**{name: value for name, value in vars(args).items() if name in names})
    if not any(True for pattern in GPU_DEVICES for _ in Path("/dev").glob(pattern)):  # asked before PyTorch is imported
        require_gpus(options, 0)
    if hasattr(args, "recipe") and args.recipe != GLUE:
        find_recipe(args.recipe)
    return options
