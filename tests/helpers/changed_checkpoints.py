"""Checkpoints with other content, without fairseq: changed, damaged, or of a stranger."""

import os
import zipfile
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


def as_args(state: dict[str, Any], /, **options: Any) -> None:
    """Give a checkpoint the older form: one namespace with all options."""
    values = vars(state["cfg"]["model"]) | state["cfg"]["task"]
    values["task"] = values.pop("_name")
    state.update(cfg=None, args=Namespace(**(values | options)))


class Intruder:
    """Unpickled without care, it creates the file ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch '{self.path}'",)


def rewrite(folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Change the folder's ``model.pt``, whose pickle torch reads and writes without any check; return it."""
    state = torch.load(folder / "model.pt", weights_only=False)
    change(state)
    torch.save(state, folder / "model.pt")
    return folder / "model.pt"


def flip(path: Path, bit: int) -> None:
    """Turns one bit of a file, counted from its start."""
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def flip_in_a_tensor(path: Path) -> None:
    """Turns the last bit of a number in the middle of the checkpoint's largest tensor."""
    with zipfile.ZipFile(path) as archive:
        largest = max(archive.infolist(), key=lambda entry: entry.file_size)
        content = archive.read(largest)
    # The archive's entries are not compressed, so that the tensor is in the file as it is in memory.
    flip(path, 8 * (path.read_bytes().index(content) + len(content) // 2 // 4 * 4))
