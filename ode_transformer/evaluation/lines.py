"""Text, one sentence a line."""

import io
import os
import sys
from collections.abc import Iterable, Iterator

from ode_transformer.errors import UserError


def read_lines(path: str | os.PathLike[str]) -> list[str]:
    """The lines of a UTF-8 text, without their ends; ``-`` is standard input.

    :raises UserError: a line is not UTF-8
    """
    return list(stream_lines(path))


def stream_lines(path: str | os.PathLike[str]) -> Iterator[str]:
    """As :func:`read_lines`, one line at a time; ``-`` is standard input."""
    if os.fspath(path) == "-":
        yield from decoded(sys.stdin.buffer, "standard input")
        return
    with open(path, "rb") as file:
        yield from decoded(file, str(path))


def decode_lines(data: bytes, name: str) -> list[str]:
    """As :func:`decoded`, of a whole text."""
    return list(decoded(io.BytesIO(data), name))


def decoded(lines: Iterable[bytes], name: str) -> Iterator[str]:
    """UTF-8 lines as text, without their ends; a last one without a line feed counts.

    Only a line feed ends a line: ``str.splitlines`` also splits at characters that occur within sentences.

    :param lines: such as a file opened as bytes
    :param name: what to call the text in an error
    :raises UserError: a line is not UTF-8
    """
    for number, line in enumerate(lines, start=1):
        try:
            yield line.removesuffix(b"\n").removesuffix(b"\r").decode()
        except UnicodeDecodeError as error:
            byte = f"byte {error.start + 1} of it is 0x{line[error.start]:02x}"
            raise UserError(f"{name}: line {number} is not UTF-8: {byte}") from error
