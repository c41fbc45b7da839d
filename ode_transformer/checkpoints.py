"""Reading and writing fairseq checkpoints safely.

A checkpoint is a pickle, and a pickle from a stranger can run code. So files are only ever read with
torch's restricted unpickler (``weights_only=True``), which builds tensors and plain containers and refuses
every other class. fairseq's files need one class more, ``argparse.Namespace``; importing this module allows
it, and no other place in the package does.
"""

import argparse
import os
import re
import warnings
from pathlib import Path
from typing import Any

import torch

from ode_transformer.errors import UserError

torch.serialization.add_safe_globals([argparse.Namespace])

_FOREIGN_OBJECT = re.compile(r"GLOBAL (\S+) (?:was not an allowed global|whose module \S+ is blocked)")


def load_checkpoint(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a fairseq checkpoint onto the CPU.

    :return: fairseq's dictionary; ``["model"]`` maps parameter names to tensors
    :raises UserError: the file is broken, is no fairseq checkpoint, or holds an object that could run code
    :raises OSError: the file cannot be opened
    """
    with open(path, "rb") as file, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Detected pickle protocol")  # such a file is refused below
        try:
            state = torch.load(file, map_location="cpu", weights_only=True)
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


def save_checkpoint(state: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a checkpoint; whenever the process dies, ``path`` holds its old content or the whole new one.

    :raises UserError: it could not be written, for example because the disk is full
    """
    path = Path(path)
    # In the target's own directory, because a rename is atomic only within one file system.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            torch.save(state, file)
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
