"""Command-line arguments that ``compare``, ``examples`` and ``error-types`` share."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from ode_transformer.support.errors import UserError


def add_outputs_argument(parser: argparse.ArgumentParser) -> None:
    """Declare ``--system NAME=FILE``, the output of each system; :func:`parse_systems` parses its values."""
    parser.add_argument(
        "--system",
        action="append",
        required=True,
        metavar="NAME=FILE",
        help="once for each: a log of fairseq-generate, or a text with a line for each sentence",
    )


def parse_systems(values: Sequence[str], file_kind: str) -> dict[str, Path]:
    """Parse the values of ``--system``, each ``NAME=FILE``.

    :param file_kind: stands for the file in an error, such as CHECKPOINT
    :raises UserError: a value has another form, a name occurs twice, or a file does not exist
    """
    systems: dict[str, Path] = {}
    for value in values:
        name, equals, path = value.partition("=")
        if not equals or not re.fullmatch(r"[^\W_][\w.+-]*", name):
            raise UserError(f"--system {value}: expected NAME={file_kind}, the name of letters, digits and . _ + -")
        if name in systems:
            raise UserError(f"--system {value}: there is another system of this name")
        if not Path(path).is_file():
            raise UserError(f"--system {value}: {path} is not a file")
        systems[name] = Path(path)
    return systems
