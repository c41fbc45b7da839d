"""Reading and writing fairseq checkpoints safely.

A checkpoint is a pickle, and a pickle from a stranger can run code. So files are only ever read with
torch's restricted unpickler (``weights_only=True``), which builds tensors and plain containers and refuses
every other class. fairseq's files need one class more, ``argparse.Namespace``, in whose place
:mod:`ode_transformer.support.plain_options` puts one that takes plain options only.

torch writes a checksum for every tensor but does not read them; here they are. Files in its format from before
version 1.6 have none, so in these a changed bit goes unnoticed.
"""

import errno
import os
import warnings
from pathlib import Path
from typing import Any

import torch

from ode_transformer.support.checkpoint_schema import check_content, check_state
from ode_transformer.support.errors import DamagedCheckpoint, UserError, is_out_of_memory
from ode_transformer.support.files import atomic_write, open_input

_DISK_ERRORS = (errno.EIO, errno.ESTALE)


def load_checkpoint(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a fairseq checkpoint onto the CPU.

    :return: fairseq's dictionary; ``["model"]`` maps parameter names to tensors
    :raises DamagedCheckpoint: the file is broken or truncated
    :raises UserError: it is no fairseq checkpoint, holds an object that could run code, or is larger than the memory
    :raises OSError: the file cannot be opened, or the disk fails
    """
    with open_input(path) as file, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Detected pickle protocol")  # such a file is refused below
        try:
            check_content(file)
            state = torch.load(file, map_location="cpu", weights_only=True)
        except UserError as error:
            raise UserError(f"{path}: refused: {error}") from error
        except Exception as error:  # bytes that are no checkpoint make the unpickler fail in any way
            if is_out_of_memory(error):
                raise UserError(f"{path}: there is too little memory to read it") from error
            if isinstance(error, OSError) and error.errno in _DISK_ERRORS:
                raise
            raise DamagedCheckpoint(f"{path}: broken or truncated") from error
    try:
        check_state(state)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    return state


def save_checkpoint(state: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a checkpoint; whenever the process dies, ``path`` holds its old content or the whole new one.

    :raises UserError: it could not be written, for example because the disk is full
    """
    with atomic_write(Path(path)) as file:
        torch.save(state, file)
