"""Text, one sentence a line."""

import os
import sys

from ode_transformer.errors import UserError


def read_lines(path: str | os.PathLike[str]) -> list[str]:
    """The lines of a UTF-8 text, without their ends; ``-`` is standard input.

    :raises UserError: a line is not UTF-8
    """
    if os.fspath(path) == "-":
        return decode_lines(sys.stdin.buffer.read(), "standard input")
    with open(path, "rb") as file:
        return decode_lines(file.read(), str(path))


def decode_lines(data: bytes, name: str) -> list[str]:
    """The lines of a UTF-8 text, without their ends; a last one without a line feed counts.

    Only a line feed ends a line: ``str.splitlines`` also splits at characters that occur within sentences.

    :param name: what to call the text in an error
    :raises UserError: a line is not UTF-8
    """
    lines = []
    for number, line in enumerate(data.removesuffix(b"\n").split(b"\n") if data else [], start=1):
        try:
            lines.append(line.removesuffix(b"\r").decode())
        except UnicodeDecodeError as error:
            byte = f"byte {error.start + 1} of it is 0x{line[error.start]:02x}"
            raise UserError(f"{name}: line {number} is not UTF-8: {byte}") from error
    return lines
