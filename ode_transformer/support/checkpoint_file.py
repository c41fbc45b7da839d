"""Reading and writing fairseq checkpoints safely.

A checkpoint is a pickle, and a pickle from a stranger can run code. So files are only ever read with
torch's restricted unpickler (``weights_only=True``), which builds tensors and plain containers and refuses
every other class. fairseq's files need one class more, ``argparse.Namespace``, in whose place
:mod:`ode_transformer.support.plain_options` puts one that takes plain options only.

torch writes a checksum for every tensor but does not read them; here they are. Files in its format from before
version 1.6 have none, so in these a changed bit goes unnoticed.
"""

import os
import re
import warnings
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import torch

import ode_transformer.support.plain_options  # noqa: F401  (lets torch read the options)
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import atomic_write, open_input

_FOREIGN_OBJECT = re.compile(r"GLOBAL (\S+) (?:was not an allowed global|whose module \S+ is blocked)")
_DIRECTORY = 0x10  # MS-DOS's attribute of an entry of an archive


def load_checkpoint(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a fairseq checkpoint onto the CPU.

    :return: fairseq's dictionary; ``["model"]`` maps parameter names to tensors
    :raises UserError: the file is broken, is no fairseq checkpoint, or holds an object that could run code
    :raises OSError: the file cannot be opened
    """
    with open_input(path) as file, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Detected pickle protocol")  # such a file is refused below
        try:
            _verify_checksums(file)
            state = torch.load(file, map_location="cpu", weights_only=True)
        except UserError as error:
            raise UserError(f"{path}: refused: {error}") from error
        except Exception as error:  # bytes that are no checkpoint make the unpickler fail in any way
            found = _FOREIGN_OBJECT.search(str(error))
            reason = (
                f"refused: it holds {found[1]}, and loading that could run code" if found else "broken or truncated"
            )
            raise UserError(f"{path}: {reason}") from error
    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        raise UserError(f"{path}: not a fairseq checkpoint, it has no 'model'")
    if strays := [key for key, value in state["model"].items() if not isinstance(value, torch.Tensor)]:
        raise UserError(f"{path}: not a fairseq checkpoint, model entry {strays[0]!r} is not a tensor")
    return state


def _verify_checksums(file: BinaryIO) -> None:
    """Raises some exception if a part of an archive is not as it was written."""
    if file.read(4) == b"PK\x03\x04":  # what torch takes for an archive
        with zipfile.ZipFile(file) as archive:
            damaged = archive.testzip()
            # torch reads nothing of an entry that is marked as a directory, and returns memory as it found it.
            if damaged is not None or any(entry.external_attr & _DIRECTORY for entry in archive.infolist()):
                raise zipfile.BadZipFile(damaged)
    file.seek(0)


def save_checkpoint(state: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a checkpoint; whenever the process dies, ``path`` holds its old content or the whole new one.

    :raises UserError: it could not be written, for example because the disk is full
    """
    with atomic_write(Path(path)) as file:
        torch.save(state, file)
