"""fairseq's own parser of trainings, with the architectures and options of this package registered."""

import argparse
import contextlib
import io
from collections.abc import Sequence
from functools import cache

from fairseq import options

from ode_transformer.support.arguments import option_names
from ode_transformer.support.errors import UserError, unknown_arguments

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
