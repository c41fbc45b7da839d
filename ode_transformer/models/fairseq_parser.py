"""fairseq's own command-line parsers, with the architectures and options of this package registered."""

from __future__ import annotations

import argparse
import contextlib
import io
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from fairseq import options

from ode_transformer.support.arguments import option_names
from ode_transformer.support.errors import UserError, unknown_arguments
from ode_transformer.support.files import PACKAGE

_PARSERS: dict[str, Callable[[], argparse.ArgumentParser]] = {
    "fairseq-train": options.get_training_parser,
    "fairseq-generate": options.get_generation_parser,
    "fairseq-eval-lm": options.get_eval_lm_parser,
}


@lru_cache
def parser_for(program: str, arguments: tuple[str, ...]) -> argparse.ArgumentParser:
    """Return the parser of a fairseq command with the options that some arguments add, such as an architecture's.

    :param program: fairseq-train, fairseq-generate or fairseq-eval-lm
    :raises UserError: a word names an architecture, task, criterion or optimizer that does not exist
    """
    parser = _new_parser(program)
    _catch_exit(lambda: options.parse_args_and_arch(parser, ["data", *arguments], parse_known=True))
    return parser


def parse(program: str, arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line of fairseq.

    :param arguments: the command line without the program's name
    :raises UserError: fairseq rejects it; the message is fairseq's
    """
    _check_user_dir(arguments)
    parser = _new_parser(program)
    args, unknown = _catch_exit(lambda: options.parse_args_and_arch(parser, list(arguments), parse_known=True))
    if unknown:
        raise UserError(unknown_arguments(unknown, option_names(parser)))
    return cast(argparse.Namespace, args)


def _new_parser(program: str) -> argparse.ArgumentParser:
    import ode_transformer.models  # noqa: F401  (registers the architectures; imports this module in turn)

    parser = _PARSERS[program]()
    get_value = parser._get_value

    def checked_value(action: argparse.Action, text: str) -> Any:
        try:
            return get_value(action, text)
        except SyntaxError as error:  # fairseq reads lists such as that of --lr as Python
            raise argparse.ArgumentError(action, f"invalid value: {text!r}") from error

    parser._get_value = checked_value  # type: ignore[assignment, method-assign]
    return parser


def _check_user_dir(arguments: Sequence[str]) -> None:
    """Refuse a folder other than this package's, which fairseq would import before it looks at anything else."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--user-dir", action="append", default=[])
    for folder in parser.parse_known_args(list(arguments))[0].user_dir:
        if Path(folder).resolve() != PACKAGE:
            raise UserError(f"--user-dir {folder}: cannot be overridden")


def _catch_exit(parse_call: Callable[[], Any]) -> Any:
    """Turn argparse's message and exit into an error of one line."""
    stderr = io.StringIO()
    try:
        with contextlib.redirect_stderr(stderr):
            return parse_call()
    except SystemExit as error:
        lines = [line for line in stderr.getvalue().splitlines() if line.strip()]
        raise UserError(lines[-1].rpartition("error: ")[2] if lines else "refused") from error
