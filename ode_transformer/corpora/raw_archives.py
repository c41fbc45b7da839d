"""Texts inside archives, read as streams: an archive is never unpacked, and no more of it is read than is needed.

A compressed tar has to be decompressed from its start to the member that is wanted, so that reading two members side by
side decompresses it twice at most. A zip file and a tar without compression are entered where the member is.
"""

from __future__ import annotations

import difflib
import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import IO, cast

from ode_transformer.support.errors import UserError

_BROKEN = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile)
Opener = Callable[[], AbstractContextManager[IO[bytes]]]


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Says in one line that a file cannot be read to its end.

    :raises UserError: what is read inside is broken
    """
    try:
        yield
    except _BROKEN as error:
        raise UserError(f"{path}: cannot be read to its end: {error}") from error
    except OSError as error:  # of bz2, which has no error of its own; those of the system name a file
        if error.filename is not None or error.errno is not None:
            raise
        raise UserError(f"{path}: cannot be read to its end: {error}") from error


def open_texts(path: Path, pattern: str | None) -> Iterator[tuple[str, IO[bytes]]]:
    """A file, or members of a tar or zip file, each to be read, inside ``reading``, before the next is asked for.

    What gzip has compressed is decompressed, whatever it is called.

    :param pattern: name of one member, or what the names of several match by the shell's rules; None for a plain text
    :returns: what to call a text in an error, and the text
    :raises UserError: there is no such member
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    if pattern is None:
        with open(path, "rb") as file:
            yield str(path), _decompressed(file)
        return
    pattern = pattern.removeprefix("./")
    others: list[str] = []
    found = False
    for name, open_member in _zip_members(path) if zipfile.is_zipfile(path) else _tar_members(path):
        if name != pattern and not fnmatchcase(name, pattern):
            others.append(name)
            continue
        found = True
        with open_member() as stream:
            yield f"{path}: {name}", _decompressed(stream)
        if name == pattern:
            return
    if not found:
        there = ", ".join(difflib.get_close_matches(pattern, others, 3, cutoff=0)) or "nothing"
        raise UserError(f"{path}: no {pattern} in it; there is {there}")


def _zip_members(path: Path) -> Iterator[tuple[str, Opener]]:
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            yield name, partial(archive.open, name)


def _tar_members(path: Path) -> Iterator[tuple[str, Opener]]:
    with tarfile.open(path) as archive:
        for member in archive:
            if member.isfile():
                yield member.name.removeprefix("./"), partial(_extracted, archive, member)


def _extracted(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    stream = archive.extractfile(member)
    assert stream is not None  # it is a file
    return stream


def _decompressed(stream: IO[bytes]) -> IO[bytes]:
    buffered = io.BufferedReader(cast(io.RawIOBase, stream))
    if buffered.peek(2)[:2] == b"\x1f\x8b":
        return io.BufferedReader(cast(io.RawIOBase, gzip.GzipFile(fileobj=buffered)))
    return buffered
