"""Writes several files so that a run that is killed leaves no half-written one."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ode_transformer.errors import UserError


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
        if error.filename is not None:
            raise
        raise UserError(f"{directory}: could not be written ({error})") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
