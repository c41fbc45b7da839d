"""Texts inside archives, read as streams: an archive is never unpacked, and read no further than needed.

A compressed tar is decompressed from its start to the requested member, so reading two members side by side
decompresses it at most twice. A zip file and an uncompressed tar are entered at the member. Links and special files are
skipped, and names of members are only compared, never used as paths.
"""

import difflib
import gzip
import io
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import IO, cast

from ode_transformer.support.errors import UserError
from ode_transformer.support.lines import decode_stream

BUFFER_BYTES = 1 << 16


def open_texts(path: Path, pattern: str | None) -> Iterator[tuple[str, IO[bytes]]]:
    """Open a file, or members of a tar or zip file, one after the other; each must be read before the next.

    A text that gzip has compressed is decompressed, whatever its name.

    :param pattern: name of a member, or a shell pattern for several; None if the file is the text
    :returns: the text's name for error messages, and its stream
    """
    if pattern is None:
        with open(path, "rb") as file:
            yield str(path), _decompress(file)
        return
    pattern, other_names, has_matched = pattern.removeprefix("./"), [], False
    for name, open_member in _zip_members(path) if zipfile.is_zipfile(path) else _tar_members(path):
        if name != pattern and not fnmatchcase(name, pattern):
            other_names.append(name)
            continue
        has_matched = True
        with open_member() as stream:
            yield f"{path}: {name}", _decompress(stream)
        if name == pattern:
            return
    if not has_matched:
        similar = ", ".join(difflib.get_close_matches(pattern, other_names, 3, cutoff=0)) or "nothing"
        raise UserError(f"{path}: no {pattern} in it; there is {similar}")


def read_texts(path: Path, pattern: str | None = None) -> Iterator[str]:
    """Yield the lines of the texts that :func:`open_texts` opens."""
    for name, text in open_texts(path, pattern):
        yield from decode_stream(text, name)


def _zip_members(path: Path) -> Iterator[tuple[str, Callable[[], IO[bytes]]]]:
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            yield name, partial(archive.open, name)


def _tar_members(path: Path) -> Iterator[tuple[str, Callable[[], IO[bytes]]]]:
    with tarfile.open(path) as archive:
        for member in archive:
            if member.isfile():
                yield (
                    member.name.removeprefix("./"),
                    partial(cast(Callable[..., IO[bytes]], archive.extractfile), member),
                )


def _decompress(stream: IO[bytes]) -> IO[bytes]:
    buffered = io.BufferedReader(cast(io.RawIOBase, stream), BUFFER_BYTES)
    return cast(IO[bytes], gzip.open(buffered)) if buffered.peek(2)[:2] == b"\x1f\x8b" else buffered
