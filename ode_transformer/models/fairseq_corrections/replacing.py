"""How a correction takes the place of one of fairseq's functions."""

import functools
import logging
from collections.abc import Callable
from typing import Any

import fairseq

Function = Callable[..., Any]

VERSION = "0.12.3"  # of fairseq, with which each correction is tested
_MISSING: list[str] = []  # functions that another version lacks


def replace(owner: Any, name: str, default: Function | None = None) -> Callable[[Function], Function]:
    """Put the decorated function in the place of fairseq's, which becomes its first argument and its ``__wrapped__``.

    :param default: what happens where fairseq has no such function
    """

    def install(correction: Function) -> Function:
        original = getattr(owner, name, default)
        if original is None:
            _MISSING.append(f"{owner.__name__}.{name}")
            return correction

        @functools.wraps(original)
        def corrected(*arguments: Any, **options: Any) -> Any:
            return correction(original, *arguments, **options)

        setattr(owner, name, corrected)
        return correction

    return install


def warn_of_another_version() -> None:
    """Say in one line that the corrections are not tested with a fairseq, and which have no function to replace."""
    if fairseq.__version__ != VERSION or _MISSING:
        logging.getLogger(__name__).warning(
            f"fairseq {fairseq.__version__}: its faults are corrected as those of {VERSION}, the tested version"
            + (f"; not found, so not corrected: {', '.join(dict.fromkeys(_MISSING))}" if _MISSING else "")
        )
