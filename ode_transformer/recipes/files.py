"""Writes several text files so that a run that is killed leaves no half-written one."""

import os
import shutil
import tempfile
from pathlib import Path


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
