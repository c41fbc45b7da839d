"""Texts inside archives, read as streams: an archive is never unpacked, and read no further than needed.

A compressed tar is decompressed from its start to the requested member, so reading two members side by side
decompresses it at most twice. A zip file and an uncompressed tar are entered at the member. Links and special files are
skipped, and names of members are only compared, never used as paths.

Archives come from the network. One that decompresses to far more than its size is refused before it fills memory or
keeps the machine busy for hours.
"""

from __future__ import annotations

import bz2
import difflib
import errno
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
from typing import IO, Any, cast

from ode_transformer.support.errors import UserError, one_line
from ode_transformer.support.lines import decode_stream

# What the standard library raises for archives that are broken, encrypted or compressed in an unknown way.
ARCHIVE_ERRORS = (
    ArithmeticError,
    EOFError,
    LookupError,
    OSError,
    RuntimeError,
    ValueError,
    lzma.LZMAError,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
)
MAX_RATIO = 250  # decompressed bytes for each byte of the file; text has 2 to 30
MAX_UNCHECKED_BYTES = 1 << 28  # up to here every ratio is accepted
MAX_PAX_BYTES = 1 << 16  # of a member's further attributes, which tarfile reads in quadratic time
MAX_TAR_HEADER_BYTES = 1 << 24  # of a header with a long name, which tarfile reads at once
MAX_SUGGESTED_FROM = 10_000  # names that an error compares with the missing one
BUFFER_BYTES = 1 << 16

Opener = Callable[[], AbstractContextManager[IO[bytes]]]


@contextmanager
def archive_errors(path: Path) -> Iterator[None]:
    """Turn an error of reading an archive into one line.

    :raises UserError: the archive is broken, encrypted or compressed in an unknown way
    """
    try:
        yield
    except ARCHIVE_ERRORS as error:
        if isinstance(error, OSError) and (error.filename is not None or error.errno not in (None, errno.EINVAL)):
            raise  # of the system, not of the archive, whose wrong offsets are invalid arguments
        raise UserError(f"{path}: cannot be read to its end: {one_line(error) or type(error).__name__}") from error


class CheckedStream(io.RawIOBase):
    """Decompressed bytes of an archive, with a bound on their number and errors that name the archive.

    :param stream: decompresses
    :param path: of the archive
    """

    def __init__(self, stream: IO[bytes], path: Path) -> None:
        self.stream, self.path = stream, path
        self.limit = max(MAX_UNCHECKED_BYTES, MAX_RATIO * path.stat().st_size)
        self.position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self.stream.seekable()

    def tell(self) -> int:
        return self.position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_SET:
            self._check_limit(offset)
        with archive_errors(self.path):
            self.position = self.stream.seek(offset, whence)
        return self.position

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        with archive_errors(self.path):
            data = self.stream.read(len(view))
        view[: len(data)] = data
        self.position += len(data)
        self._check_limit(self.position)
        return len(data)

    def read(self, size: int = -1) -> bytes | None:
        if size > MAX_TAR_HEADER_BYTES:
            raise UserError(f"{self.path}: cannot be read to its end: it has a header of {size:,} bytes")
        return super().read(size)

    def _check_limit(self, position: int) -> None:
        if position > self.limit:
            raise UserError(
                f"{self.path}: decompresses to more than {self.limit:,} bytes, which no text of its size does"
            )


def open_texts(path: Path, pattern: str | None) -> Iterator[tuple[str, IO[bytes]]]:
    """Open a file, or members of a tar or zip file, one after the other; each must be read before the next.

    A text that gzip has compressed is decompressed, whatever its name.

    :param pattern: name of a member, or a shell pattern for several; None if the file is the text
    :returns: the text's name for error messages, and its stream
    :raises UserError: the archive is broken or has no such member; also while a stream is read
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    with archive_errors(path):
        if pattern is None:
            with open(path, "rb") as file:
                yield str(path), _decompress(file, path)
            return
        yield from _open_members(path, pattern.removeprefix("./"))


def read_texts(path: Path, pattern: str | None = None) -> Iterator[str]:
    """Yield the lines of the texts that :func:`open_texts` opens.

    :raises UserError: as in ``open_texts``, or a line is not UTF-8 or too long
    """
    for name, text in open_texts(path, pattern):
        yield from decode_stream(text, name)


def _open_members(path: Path, pattern: str) -> Iterator[tuple[str, IO[bytes]]]:
    other_names: list[str] = []
    matched = False
    for name, open_member in _zip_members(path) if zipfile.is_zipfile(path) else _tar_members(path):
        if name != pattern and not fnmatchcase(name, pattern):
            if len(other_names) < MAX_SUGGESTED_FROM:
                other_names.append(name[:200])
            continue
        matched = True
        with open_member() as stream:
            yield f"{path}: {name}", _decompress(stream, path)
        if name == pattern:
            return
    if not matched:
        similar = ", ".join(difflib.get_close_matches(pattern, other_names, 3, cutoff=0)) or "nothing"
        raise UserError(f"{path}: no {pattern} in it; there is {similar}")


def _zip_members(path: Path) -> Iterator[tuple[str, Opener]]:
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            yield name, partial(archive.open, name)


def _tar_members(path: Path) -> Iterator[tuple[str, Opener]]:
    with _open_tar_stream(path) as stream:
        try:
            checked = cast(IO[bytes], CheckedStream(stream, path))
            archive = tarfile.open(fileobj=checked, mode="r:", tarinfo=_BoundedTarInfo)  # noqa: SIM115
        except tarfile.ReadError as error:
            raise tarfile.ReadError(f"file could not be opened as zip or tar ({error})") from error
        for member in archive:
            if member.isfile():
                yield member.name.removeprefix("./"), partial(_extract, archive, member)


class _BoundedTarInfo(tarfile.TarInfo):
    """Header of a member; refuses sizes with which tarfile would go back for ever, or read a header for hours."""

    def _proc_member(self, archive: tarfile.TarFile) -> Any:
        longest = MAX_PAX_BYTES if self.type in (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE) else None
        if self.size < 0 or (longest is not None and self.size > longest):
            raise tarfile.ReadError(f"a header gives a size of {self.size:,} bytes")
        return super()._proc_member(archive)  # type: ignore[misc]  # typeshed lists public methods alone


def _open_tar_stream(path: Path) -> IO[bytes]:
    """Return a tar file's decompressed bytes; tarfile would decompress by itself, but without a bound."""
    with open(path, "rb") as file:
        start = file.read(6)
    if start.startswith(b"\x1f\x8b"):
        return cast(IO[bytes], gzip.open(path))
    if start.startswith(b"BZh"):
        return bz2.open(path)
    if start.startswith((b"\xfd7zXZ\0", b"\x5d\0\0")):
        return lzma.open(path)
    return open(path, "rb")


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    stream = archive.extractfile(member)
    assert stream is not None  # it is a file
    return stream


def _decompress(stream: IO[bytes], path: Path) -> IO[bytes]:
    buffered = io.BufferedReader(cast(io.FileIO, CheckedStream(stream, path)), BUFFER_BYTES)
    if buffered.peek(2)[:2] != b"\x1f\x8b":
        return buffered
    decompressed = cast(IO[bytes], gzip.GzipFile(fileobj=buffered))
    return io.BufferedReader(cast(io.FileIO, CheckedStream(decompressed, path)), BUFFER_BYTES)


def read_zip_member(archive: zipfile.ZipFile, name: str, max_bytes: int) -> bytes:
    """Return the content of a small member.

    :raises ValueError: it is larger than ``max_bytes``
    """
    size = archive.getinfo(name).file_size
    if size > max_bytes:  # zipfile decompresses no more than the stated size
        raise ValueError(f"{size:,} bytes, more than {max_bytes:,}")
    return archive.read(name)
