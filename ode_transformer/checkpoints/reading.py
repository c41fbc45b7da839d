"""Reading of checkpoints: the one place that opens a file of a stranger, whose code never runs.

A checkpoint is a pickle, and a pickle can run code. torch's restricted unpickler (``weights_only=True``) builds tensors
and plain containers and refuses every other class; fairseq's files need one class more, ``argparse.Namespace``. What
was read comes to fairseq through :mod:`ode_transformer.models.admission`; how much it may need is said in
:mod:`ode_transformer.checkpoints.stored_sizes`. Models are built from what was read:
fairseq's own loading would read the file a second time, and in place of ``model.pt`` it takes a ``model-shard0.pt``
beside it.
"""

import argparse
import errno
import os
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ode_transformer.checkpoints.parameters import upgrade_checkpoint
from ode_transformer.checkpoints.plain_numbers import numpy_allowed
from ode_transformer.checkpoints.stored_sizes import check_archive, check_old_file, check_tensors
from ode_transformer.support.errors import DamagedCheckpoint, UserError, errors_name, is_out_of_memory
from ode_transformer.support.files import atomic_write, check_regular

MAX_SETTINGS = 10_000  # bytes of a stack's settings
_REFUSED = r"GLOBAL (\S+) (?:was not an allowed|whose module)|Unsupported class (\S+)"  # of torch's messages
_DISK_ERRORS = (errno.EIO, errno.ESTALE)  # damaged files raise others
# Greatest values by the end of an option's name, far beyond published models: what is built must not fill a machine.
_LARGEST = {"_layers": 1000, "_steps": 1000, "_dim": 2**16, "_positions": 2**18, "_sample": 2**18, "_size": 2**20}
_LARGEST |= {"_labels": 10_000}
_LARGEST_TABLE = 2**26  # numbers of a table of positions
POSITIONS = ("max_positions", "max_source_positions", "max_target_positions", "tokens_per_sample")


def load_checkpoint(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a fairseq checkpoint onto the CPU.

    :return: fairseq's dictionary; ``["model"]`` maps parameter names to tensors
    :raises DamagedCheckpoint: the file is broken or truncated
    :raises UserError: it is no fairseq checkpoint, or holds what could run code
    """
    check_regular(Path(path))
    with open(path, "rb") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            is_archive = file.read(4) == b"PK\3\4"  # as torch tells its formats apart
            file.seek(0)
            if is_archive:
                check_archive(file)
            else:  # the format from before torch 1.6, which has no checksums
                check_old_file(file)
            file.seek(0)
            torch.serialization.add_safe_globals([argparse.Namespace])  # in which fairseq keeps options
            with numpy_allowed():
                state = torch.load(file, map_location="cpu", weights_only=True)
            if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
                raise UserError("not a fairseq checkpoint, it has no 'model'")
            for name, tensor in state["model"].items():
                if name.endswith("_extra_state") and tensor.numel() > MAX_SETTINGS:
                    raise UserError(f"refused: {name} has more than {MAX_SETTINGS:,} bytes")
            check_tensors(state, os.fstat(file.fileno()).st_size)
            check_sizes(saved_options(state, "model"))
            upgrade_checkpoint(state)
        except UserError as error:
            raise UserError(f"{path}: {error}") from error
        except Exception as error:  # bytes that are no checkpoint make the unpickler fail in any way
            if is_out_of_memory(error) or (isinstance(error, OSError) and error.errno in _DISK_ERRORS):
                raise
            if refused := re.search(_REFUSED, str(error)):
                raise UserError(f"{path}: refused: it holds {refused[1] or refused[2]}") from error
            raise DamagedCheckpoint(f"{path}: broken or truncated, or not a checkpoint") from error
    return state


def check_sizes(options: Mapping[str, Any]) -> None:
    """Refuse sizes of a model or a dictionary far beyond those of published models."""
    numbers = {name: value for name, value in options.items() if isinstance(value, int)}
    for name, value in numbers.items():
        largest = next((limit for end, limit in _LARGEST.items() if name.endswith(end)), None)
        if largest is not None and value > largest:
            raise UserError(f"refused: option {name} is {str(value)[:60]}, more than {largest:,}")
    positions = max(numbers.get(name, 0) for name in POSITIONS)
    width = max(numbers.get(f"{stack}_embed_dim", 0) for stack in ("encoder", "decoder"))
    if positions * width > _LARGEST_TABLE:
        raise UserError(f"refused: a table of {positions:,} positions of {width:,} numbers")


def save_checkpoint(state: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a checkpoint; whenever the process dies, ``path`` holds its old content or the whole new one."""
    with errors_name(path), atomic_write(Path(path)) as file:
        torch.save(state, file)


def option_group(options: object) -> Mapping[str, Any]:
    """Return options as a mapping, whichever of fairseq's forms they have; empty if they have none."""
    if isinstance(options, argparse.Namespace):
        return vars(options)
    return options if isinstance(options, Mapping) else {}


def saved_options(state: Mapping[str, Any], group: str) -> Mapping[str, Any]:
    """Return the options of a checkpoint's group; old checkpoints hold all options in one namespace."""
    return option_group(state.get("args") or option_group(state.get("cfg")).get(group))


def saved_languages(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``source_lang`` and ``target_lang`` of a training, None where a checkpoint does not say.

    Options name those that the user gave, the task's state also those that follow from the names of the data's files.
    """
    options = saved_options(state, "task")
    remembered = option_group(option_group(state.get("task_state")).get("languages"))
    return {name: options.get(name) or remembered.get(name) for name in ("source_lang", "target_lang")}


def saved_updates(state: Mapping[str, Any]) -> int:
    """Return the number of updates that a model was trained for; 0 where its checkpoint does not say."""
    history = state.get("optimizer_history") or [{}]
    return int(history[-1].get("num_updates", 0))
