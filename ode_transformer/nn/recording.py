"""Tells whether a recorder watches: then nothing may look at a value of the GPU, nor depend on one."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_RECORDING: ContextVar[bool] = ContextVar("recording", default=False)


def is_recording() -> bool:
    """Tell whether a recorder watches what is computed."""
    return _RECORDING.get()


@contextmanager
def recording() -> Iterator[None]:
    """Let :func:`is_recording` be true within the ``with`` block."""
    token = _RECORDING.set(True)
    try:
        yield
    finally:
        _RECORDING.reset(token)
