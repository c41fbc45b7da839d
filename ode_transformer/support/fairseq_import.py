"""Import of fairseq in less time.

fairseq imports scikit-learn and scipy.stats for the scores of two tasks of classification, which takes as long as all
the rest of it. Here they are loaded when one of these scores is computed. Python also looks for garbage again and again
while objects are created, although what PyTorch and fairseq create stays: here it never looks among these objects.
"""

from __future__ import annotations

import gc
import importlib
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

_POSTPONED = ("sklearn", "sklearn.metrics", "scipy.stats")


class _PostponedModule(ModuleType):
    """A module whose functions import it when they are called."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*args: Any, **options: Any) -> Any:
            return getattr(importlib.import_module(self.__name__), name)(*args, **options)

        return call


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Leave all objects that exist afterwards to the end of the process."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()


def import_fairseq() -> None:
    """Import fairseq, unless it is already; afterwards everybody else imports the postponed modules as usual."""
    warnings.filterwarnings("ignore", message="'pin_memory'")  # fairseq asks for it with or without a GPU
    if "fairseq" not in sys.modules:
        with _without_garbage_collection():
            _import_fairseq()


def _import_fairseq() -> None:
    if any(name in sys.modules for name in _POSTPONED):
        importlib.import_module("fairseq")
        return
    modules = {name: _PostponedModule(name) for name in _POSTPONED}
    modules["sklearn"].metrics = modules["sklearn.metrics"]  # type: ignore[attr-defined]
    sys.modules.update(modules)
    try:
        importlib.import_module("fairseq")
    finally:
        for name, module in modules.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
