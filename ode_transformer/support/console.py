"""The terminal: headings of jobs, progress.

Progress goes to standard error, because standard output is for results.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

REPORT_INTERVAL = 5.0  # seconds between two lines of progress


# File of the whole commands while the output is compact; None otherwise.
_COMMAND_LOG: ContextVar[Path | None] = ContextVar("command log", default=None)


@contextmanager
def compact_output(command_log: Path) -> Iterator[None]:
    """During the block, print commands in short and headings without empty lines.

    :param command_log: file to which the whole commands are appended
    """
    token = _COMMAND_LOG.set(command_log)
    try:
        yield
    finally:
        _COMMAND_LOG.reset(token)


def command_log() -> Path | None:
    """Return the file of the whole commands if the output is compact, else None."""
    return _COMMAND_LOG.get()


def print_heading(line: str) -> None:
    """Print the heading of a job to standard output."""
    print(f"== {line}" if command_log() else f"\n== {line}", flush=True)


def print_progress(line: str) -> None:
    """Print a line of progress to standard error; control characters, as a file's name may have, are replaced."""
    print("".join(sign if sign.isprintable() else "�" for sign in line), file=sys.stderr, flush=True)


class ProgressMeter:
    """Progress of a long loop: prints a line every few seconds.

    :param label: names the items in the line, such as "sentences decoded"
    :param total: number of items; None if it is unknown
    """

    def __init__(self, label: str, total: int | None = None) -> None:
        self.label, self.total = label, total
        self.last_report = time.monotonic()

    def update(self, count: int, note: str = "") -> None:
        """Print the number of finished items if the last line is old enough, or if all are finished."""
        if count == self.total or time.monotonic() - self.last_report > REPORT_INTERVAL:
            self.last_report = time.monotonic()
            total = "" if self.total is None else f" of {self.total:,}"
            print_progress(f"  {self.label}: {count:,}{total}{note}")
