"""Text, one sentence a line."""

import io
import os
import sys
from collections.abc import Iterable, Iterator

from ode_transformer.support.errors import UserError


def read_lines(path: str | os.PathLike[str]) -> list[str]:
    """The lines of a UTF-8 text, without their ends.

    :param path: ``-`` for standard input
    :raises UserError: a line is not UTF-8
    """
    return list(lines_of(path))


def lines_of(path: str | os.PathLike[str]) -> Iterator[str]:
    """As :func:`read_lines`, one by one."""
    if os.fspath(path) == "-":
        yield from stream_lines(sys.stdin.buffer, "standard input")
        return
    with open(path, "rb") as file:
        yield from stream_lines(file, str(path))


def decode_lines(data: bytes, name: str) -> list[str]:
    """The lines of a UTF-8 text, as :func:`stream_lines` reads them."""
    return list(stream_lines(io.BytesIO(data), name))


def stream_lines(file: Iterable[bytes], name: str) -> Iterator[str]:
    """The lines of a UTF-8 text, without their ends, one by one; a last one without a line feed counts.

    Only a line feed ends a line: ``str.splitlines`` also splits at characters that occur within sentences.

    :param file: opened for bytes
    :param name: what to call the text in an error
    :raises UserError: a line is not UTF-8
    """
    for number, line in enumerate(file, start=1):
        try:
            yield line.removesuffix(b"\n").removesuffix(b"\r").decode()
        except UnicodeDecodeError as error:
            byte = f"byte {error.start + 1} of it is 0x{line[error.start]:02x}"
            raise UserError(f"{name}: line {number} is not UTF-8: {byte}") from error
