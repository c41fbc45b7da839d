"""Steps that are not done twice: a run that was stopped goes on where it was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ode_transformer.support.files import write_text


def say_aloud(line: str) -> None:
    print(f"\n== {line}", flush=True)


class Steps:
    """A chain of steps, each known by a digest of what it and all steps before it were asked to do.

    A step is left out if it has been completed with the same digest and its result is still there; a changed request
    redoes it and all after it.

    :param directory: where the digests of completed steps are kept
    :param before: digest of what these steps build on
    :param say: told what is done and what has been done already
    """

    def __init__(self, directory: Path, before: str = "", say: Callable[[str], None] = say_aloud) -> None:
        self.directory = directory
        self.digest = before
        self.say = say

    def digest_of(self, request: Any) -> str:
        """Digest of a request after the steps so far."""
        return hashlib.sha256(json.dumps([self.digest, request], default=str).encode()).hexdigest()

    def has_done(self, name: str, request: Any, result: Path) -> bool:
        """Whether a step has been completed with this request and its result is still there."""
        record = self.directory / f"{name}.done"
        return result.exists() and record.exists() and record.read_text() == self.digest_of([name, request])

    def pass_over(self, name: str, request: Any) -> None:
        """Builds on a step without doing it."""
        self.digest = self.digest_of([name, request])

    def __call__(self, name: str, request: Any, result: Path, make: Callable[[], None]) -> None:
        """Does a step unless it has been done.

        :param name: of the step, and of its record
        :param request: what it is asked to do, as far as JSON can say it
        :param result: what it leaves; a step whose result is gone is done again
        :param make: does it
        """
        digest = self.digest_of([name, request])
        record = self.directory / f"{name}.done"
        if self.has_done(name, request, result):
            self.say(f"{name}: already done")
        else:
            self.say(name)
            record.unlink(missing_ok=True)
            make()
            self.directory.mkdir(parents=True, exist_ok=True)
            write_text(record, digest)
        self.digest = digest
