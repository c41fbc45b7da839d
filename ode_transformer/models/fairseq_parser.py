"""fairseq's own parser of trainings, with the architectures and options of this package registered."""

import argparse
import contextlib
import io
import sys
from collections.abc import Sequence
from functools import cache

from fairseq import options
from fairseq.models import ARCH_MODEL_REGISTRY

from ode_transformer.support.arguments import option_names
from ode_transformer.support.errors import UserError, did_you_mean, unknown_arguments

_training_parser = cache(options.get_training_parser)  # to copy, in a quarter of the time: parsing extends it


def parse_training(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line of fairseq-train.

    :param arguments: the command line without the program's name
    :raises UserError: fairseq rejects it; the message is fairseq's
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, parents=[_training_parser()])
    stderr = io.StringIO()
    try:
        with contextlib.redirect_stderr(stderr):
            args, unknown = options.parse_args_and_arch(parser, list(arguments), parse_known=True)
    except SystemExit as error:
        lines = [line for line in stderr.getvalue().splitlines() if line.strip()]
        raise UserError(lines[-1].rpartition("error: ")[2] if lines else "refused") from error
    if unknown:
        raise UserError(unknown_arguments(unknown, option_names(parser)))
    return args


def suggest_architecture(command_line: Sequence[str]) -> None:
    """Print the name that a mistyped ``--arch`` resembles, below fairseq's list of 250 names."""
    command_line = [argument for word in command_line for argument in word.split("=", 1)]
    named = dict(zip(command_line, command_line[1:], strict=False))
    arch = named.get("--arch", named.get("-a", ""))
    if arch not in ARCH_MODEL_REGISTRY and (similar := did_you_mean(arch, ARCH_MODEL_REGISTRY)):
        print(f"--arch {arch}: no such architecture{similar}", file=sys.stderr)
