"""Processes that this one has not started, but whose end it waits for."""

import time
from contextlib import suppress
from pathlib import Path


def wait_for_end(number: int, seconds: float = 30) -> None:
    """Wait until the process of this number has ended.

    :raises TimeoutError: it runs on after ``seconds``
    """
    status, deadline = Path("/proc", str(number), "status"), time.monotonic() + seconds
    with suppress(FileNotFoundError, ProcessLookupError):
        while "State:\tZ" not in status.read_text():
            if time.monotonic() > deadline:
                raise TimeoutError(f"process {number} runs on")
            time.sleep(0.05)
