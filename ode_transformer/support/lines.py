"""UTF-8 text, one sentence per line.

Only a line feed ends a line (a carriage return before it is dropped): ``str.splitlines`` also splits at characters
that occur within sentences.
"""

import io
import os
import sys
from collections.abc import Iterator
from typing import IO

from ode_transformer.support.errors import UserError
from ode_transformer.support.files import open_input

MAX_LINE_BYTES = 2**24  # far above any sentence; bounds the memory that a file without line feeds takes


def read_lines(path: str | os.PathLike[str]) -> list[str]:
    """Return the lines of a text without their ends.

    :param path: ``-`` for standard input
    :raises UserError: see :func:`decode_stream`, or the path is no regular file
    """
    return list(iterate_lines(path))


def iterate_lines(path: str | os.PathLike[str]) -> Iterator[str]:
    """Yield the lines that :func:`read_lines` returns."""
    if os.fspath(path) == "-":
        yield from decode_stream(sys.stdin.buffer, "standard input")
        return
    with open_input(path) as file:
        yield from decode_stream(file, str(path))


def decode_lines(data: bytes, name: str) -> list[str]:
    """Return the lines of a text in memory; see :func:`decode_stream`."""
    return list(decode_stream(io.BytesIO(data), name))


def decode_stream(file: IO[bytes], name: str) -> Iterator[str]:
    """Yield the lines of an open text without their ends; a last line without a line feed counts.

    :param file: opened for bytes
    :param name: names the text in an error
    :raises UserError: a line is not UTF-8 or longer than ``MAX_LINE_BYTES``, or the text seems to be UTF-16
    """
    for number, line in enumerate(byte_lines(file, name), start=1):
        # utf-8-sig leaves out the mark that some editors put before a text.
        encoding = "utf-8-sig" if number == 1 else "utf-8"
        if number == 1 and line.count(b"\0") > len(line) / 3:  # of ASCII letters in UTF-16, half the bytes
            raise UserError(f"{name}: line 1 is full of zero bytes, as UTF-16 is; a text has to be UTF-8")
        try:
            yield line.removesuffix(b"\n").removesuffix(b"\r").decode(encoding)
        except UnicodeDecodeError as error:
            byte = f"byte {error.start + 1} of it is 0x{line[error.start]:02x}"
            raise UserError(f"{name}: line {number} is not UTF-8: {byte}") from error


def byte_lines(file: IO[bytes], name: str) -> Iterator[bytes]:
    """Yield the lines of an open binary file with their ends.

    :raises UserError: a line is longer than ``MAX_LINE_BYTES``
    """
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            raise UserError(f"{name}: line {number} is longer than {MAX_LINE_BYTES:,} bytes")
        yield line
