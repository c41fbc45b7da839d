"""Progress of long work, told on standard error: standard output is for results."""

import sys
import time

SAVE_EVERY = 60.0  # seconds between two savings of a long pass


def say(line: str) -> None:
    """One line of progress."""
    print(line, file=sys.stderr, flush=True)


class Pace:
    """Says how far a long pass is, every few seconds, and when to save it.

    :param total: how much there is; None where only the end will tell
    """

    def __init__(self, what: str, total: int | None = None) -> None:
        self.what, self.total = what, total
        self.said = self.saved = time.monotonic()

    def tell(self, done: int, more: str = "") -> None:
        if done == self.total or time.monotonic() - self.said > 5:
            self.said = time.monotonic()
            of = "" if self.total is None else f" of {self.total:,}"
            say(f"  {self.what}: {done:,}{of}{more}")

    def should_save(self) -> bool:
        if time.monotonic() - self.saved < SAVE_EVERY:
            return False
        self.saved = time.monotonic()
        return True
