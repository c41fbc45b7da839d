"""Files and folders that are written whole or not at all."""

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ode_transformer.support.errors import UserError


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write into, which takes the place of ``path`` once the block has ended without an error.

    Whenever the process dies, ``path`` holds its old content or the whole new one.

    :raises UserError: it could not be written, for example because the disk is full
    """
    # In the target's own directory, because a rename is atomic only within one file system.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except (OSError, RuntimeError) as error:  # torch's writer reports a full disk as a RuntimeError
        raise UserError(f"{path}: could not be written ({error})") from error
    finally:
        temporary.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)  # makes the rename itself survive a power cut
    finally:
        os.close(directory)


def write_text(path: Path, text: str) -> None:
    """A whole UTF-8 text, as :func:`replacing` writes it."""
    with replacing(path) as file:
        file.write(text.encode())


def content_of(paths: Iterable[Path]) -> str:
    """A digest of what is in the files."""
    digest = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            digest.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()


def require_place(path: Path) -> None:
    """Refuses, before any work is done, a path at which ``replacing`` could put no file.

    :raises UserError: a directory or device is there, or its directory does not exist
    """
    if (path.exists() and not path.is_file()) or not path.parent.is_dir():
        raise UserError(f"{path}: not a file in an existing directory")


def place(directory: Path, files: dict[str, str], last: str) -> None:
    """Write all ``files`` (name: text) or leave ``directory`` without the file called ``last``."""
    directory.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=".partial-", dir=directory))
    try:
        for name, text in files.items():
            (staging / name).write_text(text, encoding="utf-8", newline="\n")
        (directory / last).unlink(missing_ok=True)
        for name in sorted(files, key=lambda name: name == last):
            os.replace(staging / name, directory / name)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


@contextmanager
def staged(directory: Path) -> Iterator[Path]:
    """A new folder to write into, which takes the place of ``directory`` once the block has ended without an error.

    :raises UserError: it could not be written, for example because the disk is full
    """
    staging = directory.with_name(f".{directory.name}.partial")
    shutil.rmtree(staging, ignore_errors=True)  # of a run that was killed
    staging.mkdir(parents=True)
    try:
        yield staging
        shutil.rmtree(directory, ignore_errors=True)
        os.replace(staging, directory)
    except OSError as error:
        if error.filename is not None:  # of another file, or names the one
            raise
        raise UserError(f"{directory}: could not be written ({error})") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


@contextmanager
def locked(folder: Path, work: str) -> Iterator[None]:
    """Within the block no other process holds the lock of an existing folder; a process that dies gives it up.

    :param work: what is going on in it
    :raises UserError: another process holds it
    """
    place = os.open(folder, os.O_RDONLY)  # the folder itself: no file is left in it
    try:
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(f"{folder}: another process is {work} here") from error
        yield
    finally:
        os.close(place)
