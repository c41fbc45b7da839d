"""The terminal: headings of jobs, progress.

Progress goes to standard error, because standard output is for results.
"""

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TextIO, TypeVar

REPORT_INTERVAL = 5.0  # seconds between two lines of progress
SILENCE = 15.0  # seconds after which a command that prints nothing is said to work


printed = 0  # texts so far

# File of the whole commands while the output is compact; None otherwise.
COMMAND_LOG: ContextVar[Path | None] = ContextVar("command log", default=None)


@contextmanager
def compact_output(command_log: Path) -> Iterator[None]:
    """During the block, print commands in short, and whole into ``command_log``; headings have no empty lines."""
    token = COMMAND_LOG.set(command_log)
    try:
        yield
    finally:
        COMMAND_LOG.reset(token)


def print_heading(line: str) -> None:
    """Print the heading of a job to standard output."""
    print(f"== {line}" if COMMAND_LOG.get() else f"\n== {line}", flush=True)


def print_text(text: object, end: str = "\n", file: TextIO | None = None) -> None:
    """Print what a file holds or is called: control characters, which would change the terminal, are replaced."""
    global printed
    printed += 1
    safe = "".join(sign if sign.isprintable() or sign == "\n" else "�" for sign in str(text))
    print(safe, end=end, file=file, flush=True)


def print_progress(line: str) -> None:
    """Print a line of progress to standard error."""
    print_text(line.replace("\n", "�"), file=sys.stderr)


Item = TypeVar("Item")


def track(items: Sequence[Item], label: str) -> Iterator[Item]:
    """Yield items and print the progress of the loop over them, see :class:`ProgressMeter`."""
    meter = ProgressMeter(label, len(items))
    for item in items:
        yield item
        meter.add(1)


@contextmanager
def report_silence(label: str) -> Iterator[None]:
    """During the block, print how long it has taken whenever nothing else was printed for ``SILENCE`` seconds."""
    done, start = threading.Event(), time.monotonic()

    def report() -> None:
        seen = printed
        while not done.wait(SILENCE):
            if printed == seen:
                print_progress(f"  {label}: {time.monotonic() - start:.0f} seconds")
            seen = printed

    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


class ProgressMeter:
    """Progress of a long loop: prints a line every few seconds, with an estimate of the rest.

    :param label: names the items in the line, such as "sentences decoded"
    :param total: number of items; None if it is unknown
    :param count: of items that were finished before
    """

    def __init__(self, label: str, total: int | None = None, count: int = 0) -> None:
        self.label, self.total, self.count = label, total, count
        self.before, self.reported = count, False
        self.start = self.last_report = time.monotonic()

    def add(self, count: int) -> None:
        """Count further items as finished."""
        self.update(self.count + count)

    def update(self, count: int, note: str = "") -> None:
        """Print the number of finished items if the last line is old enough, and once more when all are finished."""
        self.count, now = count, time.monotonic()
        if now - self.last_report <= REPORT_INTERVAL and not (count == self.total and self.reported):
            return
        self.last_report, self.reported = now, True
        total = remaining = ""
        if self.total is not None:
            total = f" of {self.total:,}"
            if self.before < count < self.total:
                minutes = (now - self.start) / 60 * (self.total - count) / (count - self.before)
                remaining = f", {minutes:.1f} minutes left"
        print_progress(f"  {self.label}: {count:,}{total}{note}{remaining}")
