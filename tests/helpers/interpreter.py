"""Triton's interpreter, which a process has for all kernels or for none."""

import multiprocessing
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import Any
from unittest.mock import patch


def interpreted(function: Callable[..., Any], cases: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Return what a function of a module returns for each case of arguments, in a new process with the interpreter."""
    spawn = multiprocessing.get_context("spawn")
    with patch.dict(os.environ, {"TRITON_INTERPRET": "1"}), ProcessPoolExecutor(1, spawn) as pool:
        return [future.result() for future in [pool.submit(function, *case) for case in cases]]
