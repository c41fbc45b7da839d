"""Files and folders that are written completely or not at all."""

import glob
import gzip
import hashlib
import json
import os
import platform
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from ode_transformer.support.errors import LockedError, UserError

DIGESTS = "SHA256SUMS"
LOCK_FILE = ".lock"  # stays, empty, in a folder that was locked
PACKAGE = Path(__file__).resolve().parents[1]  # the value of fairseq's --user-dir


@contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that replaces ``path`` when the block ends without an error.

    Whenever the process dies, ``path`` holds its old content or all of the new one. A symbolic link is followed: it
    stays, and the file that it points to is replaced.
    """
    target = Path(os.path.realpath(path))
    # In the target's own directory, because a rename is atomic only within one file system.
    temporary = temporary_path(target)
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    if os.name == "posix":  # Windows opens no folder
        directory = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(directory)  # makes the rename itself survive a power cut
        finally:
            os.close(directory)


def temporary_path(target: Path) -> Path:
    """Return where this process may write before it renames to ``target``; remove what killed processes left there."""
    start = f".{target.name}.{platform.node()}-"
    for leftover in target.parent.glob(f"{glob.escape(start)}*.tmp"):
        from psutil import pid_exists  # slow, and seldom needed

        process = leftover.name[len(start) : -len(".tmp")]
        if not (process.isdecimal() and pid_exists(int(process))):
            if leftover.is_dir():
                shutil.rmtree(leftover, ignore_errors=True)
            else:
                leftover.unlink(missing_ok=True)
    return target.with_name(f"{start}{os.getpid()}.tmp")


def part_path(path: Path) -> Path:
    """Return where :func:`growing_file` writes until a file is complete."""
    return Path(f"{os.path.realpath(path)}.part")


@contextmanager
def growing_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that replaces ``path`` when the block ends without an error.

    What is written before a stop stays in ``part_path(path)``, beside the old content of ``path``.
    """
    part = part_path(path)
    try:
        with open(part, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, os.path.realpath(path))
    finally:
        if part.exists() and part.stat().st_size == 0:
            part.unlink()


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text with :func:`atomic_write`."""
    with atomic_write(path) as file:
        file.write(text.encode())


def check_writable(path: Path) -> None:
    """Check, before any work is done, that :func:`atomic_write` can write to a path.

    :raises UserError: the path is a directory or device, or its directory does not exist
    """
    target = Path(os.path.realpath(path))
    if target.is_symlink() or (target.exists() and not target.is_file()) or not target.parent.is_dir():
        raise UserError(f"{path}: not a file in an existing directory")


def check_regular(path: Path) -> None:
    """Check that a path, if it exists, is a regular file: a pipe would be waited for, and a device may never end.

    :raises UserError: it is something else
    """
    if path.exists() and not path.is_file():
        raise UserError(f"{path}: not a regular file")


def check_outputs_are_no_inputs(outputs: Sequence[Path], inputs: Sequence[Path]) -> None:
    """Check, before any work is done, that no output replaces an input."""
    read = set(map(os.path.realpath, inputs))
    for output in outputs:
        if os.path.realpath(output) in read:
            raise UserError(f"{output}: an input of this command, which the output would replace")


def file_stamp(path: Path) -> list[object]:
    """Return size and modification time of a file, which change when it does."""
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]


def file_digest(path: Path, algorithm: str = "sha256", decompress: bool = False) -> str:
    """Return the digest of a file, or of what a .gz file holds."""
    with gzip.open(path) if decompress else open(path, "rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def content_digest(paths: Iterable[Path]) -> str:
    """Return a digest of the names and contents of files."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.name} {file_digest(path)}\n".encode())
    return digest.hexdigest()


def _digests(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.iterdir()) if path.name != DIGESTS)
    return {path.name: file_digest(path) if path.is_file() else "" for path in files}  # a pipe would be waited for


def write_digests(folder: Path) -> None:
    """Write the digests of a folder's files into a further one, as sha256sum does."""
    lines = [f"{digest}  {name}\n" for name, digest in _digests(folder).items()]
    (folder / DIGESTS).write_text("".join(lines), encoding="utf-8")


def check_digests(folder: Path) -> None:
    """Compare a folder's files with their digests.

    The loader chooses by their names which files it reads, so a file without digest is refused.

    :raises UserError: a file is missing, another one or not listed
    """
    if not (folder / DIGESTS).is_file():
        raise UserError(f"{folder}: has no {DIGESTS}, so it is no complete folder of this version's export")
    lines = (folder / DIGESTS).read_text(encoding="utf-8").splitlines()
    expected = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    if changed := sorted({name for name, _ in expected.items() ^ _digests(folder).items()}):
        advice = f"not a file that was exported, as {DIGESTS} says; export the model again"
        raise UserError(f"{folder / changed[0]}: {advice}")


def write_files(directory: Path, files: dict[str, str], last: str) -> None:
    """Write several texts; until all are written, ``directory`` has no file called ``last``."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / last).unlink(missing_ok=True)
    for name in sorted(files, key=lambda name: name == last):
        write_text(directory / name, files[name])


def move_into_place(path: Path, target: Path) -> None:
    """Move a file or folder to where nothing stands.

    :raises UserError: something stands there, which stays
    """
    try:
        os.link(path, target)  # in one step with the look whether something stands there
    except OSError as error:  # a folder, a file system without hard links, or something stands there
        if os.path.lexists(target):
            raise UserError(f"{target}: has appeared or changed meanwhile and is not replaced; move it away") from error
        os.rename(path, target)  # which does not replace a folder with files
    else:
        path.unlink()


def _folder_state(folder: Path) -> list[tuple[object, ...]]:
    """Return what tells whether a folder is still the same, with the same files."""
    states = ((path, path.lstat()) for path in sorted([folder, *folder.rglob("*")]) if os.path.lexists(path))
    return [(path, state.st_ino, state.st_size, state.st_mtime_ns) for path, state in states]


@contextmanager
def atomic_directory(directory: Path, replaces: bool = False) -> Iterator[Path]:
    """Create a folder for writing that appears as ``directory`` when the block ends without an error.

    :param replaces: the folder that stands there now is replaced, unless it changes meanwhile
    :raises UserError: something else stands there at the end, which stays
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    replaced = _folder_state(directory) if replaces else []
    staging = temporary_path(directory)
    shutil.rmtree(staging, ignore_errors=True)  # of a killed process that had this one's number
    staging.mkdir()
    try:
        yield staging
        if replaced and _folder_state(directory) == replaced:
            shutil.rmtree(directory)
        move_into_place(staging, directory)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def read_json(path: Path) -> Any:
    return json.loads(path.read_bytes())


def is_locked(directory: Path) -> bool:
    """Return whether a process holds the lock of a directory."""
    try:
        with lock_directory(directory, ""):
            return False
    except LockedError:
        return True


@contextmanager
def lock_directory(directory: Path, work: str) -> Iterator[None]:
    """Hold the lock of a directory, which is created, during the block; a process that dies releases its lock.

    :param work: names the work for the other process's error, such as "training"
    :raises LockedError: another process holds the lock
    """
    from filelock import FileLock, Timeout  # slow

    directory.mkdir(parents=True, exist_ok=True)
    try:
        # For all who may write into a shared folder.
        lock = FileLock(directory / LOCK_FILE, mode=0o666).acquire(blocking=False)
    except Timeout as error:
        raise LockedError(f"{directory}: another process is {work} here") from error
    with lock:
        yield


def file_name(name: str) -> str:
    """Return a system's name in letters that a file can have."""
    return re.sub(r"[^\w.+]+", "-", name).strip("-_.")
