"""UTF-8 text, one sentence per line.

Only a line feed ends a line (a carriage return before it is dropped): ``str.splitlines`` also splits at characters
that occur within sentences.
"""

import io
import os
import re
import sys
from collections.abc import Iterator
from typing import IO

from ode_transformer.support.errors import UserError, errors_name

# Words that fairseq reads as its symbols: a beginning, padding and an end
SYMBOLS = re.compile(r"(?<!\S)(?:<s>|<pad>|</s>)(?!\S)")

# What Python, and therefore fairseq, takes for a space; the last one is that of Chinese and Japanese
SPACES = frozenset(chr(code) for code in range(0x3001) if chr(code).isspace())


def read_lines(path: str | os.PathLike[str]) -> list[str]:
    """Return the lines of a text without their ends; the path ``-`` is standard input."""
    return list(iterate_lines(path))


def iterate_lines(path: str | os.PathLike[str]) -> Iterator[str]:
    """Yield the lines that :func:`read_lines` returns."""
    if os.fspath(path) == "-":
        yield from decode_stream(sys.stdin.buffer, "standard input")
        return
    with open(path, "rb") as file:
        yield from decode_stream(file, str(path))


def decode_lines(data: bytes, name: str) -> list[str]:
    """Return the lines of a text in memory; see :func:`decode_stream`."""
    return list(decode_stream(io.BytesIO(data), name))


def decode_stream(file: IO[bytes], name: str) -> Iterator[str]:
    """Yield the lines of an open text without their ends; a last line without a line feed counts.

    :raises UserError: a line is not UTF-8, or the text is compressed
    """
    with errors_name(name):
        for number, line in enumerate(file, start=1):
            try:
                # utf-8-sig leaves out the mark that some editors put before a text.
                yield line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                if number == 1 and line.startswith(b"\x1f\x8b"):
                    raise UserError(
                        f"{name}: compressed by gzip; gunzip it, or give the text that zcat writes"
                    ) from error
                byte = f"byte {error.start + 1} of it is 0x{line[error.start]:02x}"
                raise UserError(f"{name}: line {number} is not UTF-8: {byte}") from error
