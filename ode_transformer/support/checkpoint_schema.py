"""The structure of a checkpoint: what its bytes may hold before they are read, and its parts afterwards.

torch's restricted unpickler runs no code, but it builds what a file asks for: a compressed archive of any size, tensors
that are sparse, quantised or without data, views that repeat one number a billion times. No checkpoint of a Transformer
has these, so they are refused by their names in the pickle, before torch sees it, and by the shape of the result.
"""

from __future__ import annotations

import argparse
import os
import pickletools
import re
import zipfile
from collections.abc import Mapping
from typing import Any, BinaryIO

import torch
from torch import Tensor

from ode_transformer.support.errors import UserError
from ode_transformer.support.plain_options import plain_mapping, shown

MAX_PICKLE_BYTES = 2**26  # 64 MiB: names and shapes of a few hundred thousand tensors
MAX_PICKLE_STEPS = 5_000_000  # instructions of a pickle; ten for each number in a list, sixty for each tensor
MAX_VIEWS = 64  # names under which one tensor may be saved, as layers that share their parameters do

DTYPES = {
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool),
}
_STORAGES = ("Half", "BFloat16", "Float", "Double", "Byte", "Char", "Short", "Int", "Long", "Bool")
# The classes and functions that pickles of checkpoints name.
_GLOBALS = {
    "argparse.Namespace",
    "collections.OrderedDict",
    "__builtin__.set",
    "torch.Size",
    "torch.nn.parameter.Parameter",
    *(f"torch._utils.{name}" for name in ("_rebuild_parameter", "_rebuild_tensor", "_rebuild_tensor_v2")),
    *(f"torch.{kind}Storage" for kind in _STORAGES),
}
_ZIP_START = b"PK\x03\x04"  # what torch takes for an archive
_DIRECTORY = 0x10  # MS-DOS's attribute of an entry of an archive
_LEGACY_PICKLES = 5  # magic number, version, machine, the checkpoint, keys of its tensors
_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")


class DamagedFile(Exception):
    """The bytes of a file are not as they were written."""


def check_content(file: BinaryIO) -> None:
    """Check a file before torch reads it: checksums, sizes, and the classes that its pickle names.

    :raises UserError: a size or a class is refused
    :raises Exception: any, if it is broken
    """
    size = os.fstat(file.fileno()).st_size
    if file.read(4) == _ZIP_START:
        with zipfile.ZipFile(file) as archive:
            _check_archive(archive, size)
    else:
        file.seek(0)
        for _ in range(_LEGACY_PICKLES):
            _check_pickle(file)
    file.seek(0)


def _check_archive(archive: zipfile.ZipFile, size: int) -> None:
    entries = archive.infolist()
    compressed = [entry for entry in entries if entry.compress_type != zipfile.ZIP_STORED]
    if entries and len(compressed) == len(entries):
        raise UserError("its parts are compressed, which torch.save never does")
    if compressed or sum(entry.file_size for entry in entries) > size:
        raise DamagedFile("sizes in an archive")
    # torch reads nothing of an entry that is marked as a directory, and returns memory as it found it.
    names = {entry.filename.casefold() for entry in entries}  # torch finds them in upper and lower case
    if len(names) < len(entries) or any(e.external_attr & _DIRECTORY for e in entries):
        raise DamagedFile("entries of an archive")
    if archive.testzip() is not None:
        raise DamagedFile("a checksum")
    for entry in entries:
        if entry.filename.casefold().endswith(".pkl"):
            if entry.file_size > MAX_PICKLE_BYTES:
                raise UserError(f"{entry.file_size:,} bytes of names and options are more than any checkpoint has")
            with archive.open(entry) as pickle:
                _check_pickle(pickle)


MAX_SHOWN_NAME = 100  # characters of a class in a message; a damaged name can be very long


def _check_pickle(file: Any) -> None:
    for step, (opcode, argument, _) in enumerate(pickletools.genops(file)):
        if step > MAX_PICKLE_STEPS:
            raise UserError("its names and options are more than any checkpoint has")
        if opcode.name == "GLOBAL" and (name := str(argument).replace(" ", ".")) not in _GLOBALS:
            why = "which no checkpoint needs" if name.startswith("torch.") else "and loading that could run code"
            raise UserError(f"it holds {name[:MAX_SHOWN_NAME]}, {why}")


def check_state(state: object) -> None:
    """Check the parts of a checkpoint that was read.

    :raises UserError: a part is of another type than fairseq writes
    """
    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        raise UserError("not a fairseq checkpoint, it has no 'model'")
    _check_part(state, "args", argparse.Namespace, None)
    _check_part(state, "cfg", dict, None)
    _check_part(state, "extra_state", dict)
    _check_part(state, "task_state", dict)
    _check_part(state, "last_optimizer_state", dict, None)
    _check_part(state, "optimizer_history", list)
    for entry in state.get("optimizer_history", [{}]) or [None]:
        updates = entry.get("num_updates", 0) if isinstance(entry, dict) else None
        if type(updates) is not int or not 0 <= updates < 2**63:
            raise UserError("not a fairseq checkpoint, 'optimizer_history' does not say how many updates it had")
    if state.get("args") is not None:
        plain_mapping(vars(state["args"]))
    for name, group in plain_mapping(state.get("cfg") or {}).items():
        if name in ("model", "task") and not isinstance(group, dict | argparse.Namespace | None):
            raise UserError(f"not a fairseq checkpoint, 'cfg.{name}' is of type {type(group).__name__}")
    check_tensors(state["model"])


def _check_part(state: Mapping[str, Any], name: str, *types: type | None) -> None:
    if name in state and not any(state[name] is None if kind is None else type(state[name]) is kind for kind in types):
        raise UserError(f"not a fairseq checkpoint, {name!r} is of type {type(state[name]).__name__}")


def check_tensors(model: Mapping[str, Any]) -> None:
    """Check that parameters are ordinary tensors with data of their own.

    :raises UserError: names one that is not
    """
    storages: dict[int, int] = {}
    total = 0
    for name, tensor in model.items():
        if not isinstance(name, str):
            raise UserError(f"not a fairseq checkpoint, {shown(name)} is not the name of a parameter")
        if not isinstance(tensor, Tensor):
            raise UserError(f"not a fairseq checkpoint, model entry {name!r} is not a tensor")
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta or tensor.dtype not in DTYPES:
            kind = f"{tensor.layout} {tensor.dtype} on {tensor.device}".replace("torch.", "")
            raise UserError(f"model entry {name!r} is a tensor of a kind that no model has: {kind}")
        storage, size = tensor.untyped_storage(), tensor.numel() * tensor.element_size()
        if size > storage.nbytes():
            raise UserError(f"model entry {name!r} repeats its data: {tuple(tensor.shape)} of {storage.nbytes()} bytes")
        storages[storage.data_ptr()] = storage.nbytes()
        total += size
    if total > MAX_VIEWS * sum(storages.values()):
        raise UserError(f"its model repeats its data more than {MAX_VIEWS} times")


def check_finite(model: Mapping[str, Tensor]) -> None:
    """Check that all numbers of a model are finite.

    :raises UserError: names a parameter that has others
    """
    for name, tensor in model.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise UserError(f"the parameter {name!r} has a value that is infinite or not a number")


def saved_updates(state: Mapping[str, Any]) -> int | None:
    """Return the number of updates that a model was trained for, or None where its checkpoint does not say."""
    history = state.get("optimizer_history") or [{}]
    updates: int | None = history[-1].get("num_updates")
    return updates


def saved_layers(model: Mapping[str, Tensor]) -> int:
    """Return the number of layers that parameters have names of, in the larger stack."""
    numbers = {int(match[1][:9]) for name in model if (match := _LAYER.search(name))}
    return len(numbers)
