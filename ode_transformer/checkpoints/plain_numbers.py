"""NumPy's arrays and scalars, which metrics of fairseq leave in checkpoints, read and written as numbers of Python.

PyTorch's restricted unpickler refuses NumPy's own classes. Those here take types of numbers alone: an array of objects
could hold addresses of memory.
"""

from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch

from ode_transformer.support.errors import UserError


class _NumberType:
    """Stands for ``numpy.dtype``."""

    def __init__(self, name: str, *_: object) -> None:
        self.dtype = np.dtype(str(name))
        if self.dtype.kind not in "biuf":
            raise UserError(f"refused: it holds {name} of NumPy, which are no numbers")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.dtype = self.dtype.newbyteorder(state[1])


class _Array(list[Any]):
    """Stands for ``numpy.ndarray``."""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, number_type, is_fortran, content = state
        array = np.frombuffer(content, number_type.dtype).reshape(shape, order="F" if is_fortran else "C")
        self[:] = np.atleast_1d(array).tolist() if array.size else []  # a shape of (10**9, 0) claims as many lists

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)


def _number(number_type: _NumberType, content: bytes) -> Any:
    return np.frombuffer(content, number_type.dtype)[0].item()


def numpy_allowed() -> AbstractContextManager[None]:
    """Let PyTorch's restricted unpickler read arrays and scalars of NumPy 1 and 2 during a block.

    Other libraries, such as Hugging Face's Trainer, have the unpickler read NumPy's own classes.
    """
    stand_ins: list[Any] = [(_NumberType, "numpy.dtype"), (_Array, "numpy.ndarray")]
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
        stand_ins += [(lambda *_: _Array(), f"{module}._reconstruct"), (_number, f"{module}.scalar")]
    return torch.serialization.safe_globals(stand_ins)


def plain_numbers(value: Any) -> Any:
    """Return nested containers in which NumPy's arrays and scalars are lists and numbers."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, dict):
        return type(value)((key, plain_numbers(entry)) for key, entry in value.items())
    if isinstance(value, list | tuple):
        return type(value)(map(plain_numbers, value))
    return value
