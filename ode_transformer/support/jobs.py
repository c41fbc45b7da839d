"""Resumable jobs: a job whose request has not changed and whose result is still there is skipped."""

import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ode_transformer.support.console import print_heading


class Manifest:
    """The record of a folder, ``manifest.jsonl``: entries by name, a line for each change, the last of which counts.

    Lines are only added: processes that share the folder never lose each other's entries, and a line that a kill has
    torn costs itself alone.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "manifest.jsonl"

    def entries(self) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        if self.path.exists():
            for line in self.path.read_bytes().splitlines():
                with suppress(ValueError):  # torn
                    entries |= json.loads(line)
        return entries

    def record(self, **entries: Any) -> None:
        """Add or replace entries."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "ab", buffering=0) as file:
            file.write(f"\n{json.dumps(entries, default=str)}\n".encode())  # a torn line before it ends here
            os.fsync(file)


class Jobs:
    """A chain of jobs, each identified by a digest of its own request and of all requests before it.

    A job is skipped if it was completed with the same digest and its result still exists; a changed request
    runs it and all jobs after it again.

    :param directory: whose manifest records the digests of completed jobs
    :param digest: of what the chain builds on, such as another chain
    :param report: called with a line for each job that starts or is skipped
    """

    def __init__(self, directory: Path, digest: str = "", report: Callable[[str], None] = print_heading) -> None:
        self.manifest = Manifest(directory)
        self.digest = digest
        self.report = report

    def digest_of(self, request: Any) -> str:
        """Return the digest of a request that follows the jobs so far."""
        return hashlib.sha256(json.dumps([self.digest, request], default=str).encode()).hexdigest()

    def is_done(self, name: str, request: Any, result: Path) -> bool:
        """Return whether a job was completed with this request and its result still exists."""
        return result.exists() and self.manifest.entries().get(f"done {name}") == self.digest_of([name, request])

    def skip(self, name: str, request: Any) -> None:
        """Add a completed job to the chain without running it."""
        self.digest = self.digest_of([name, request])

    def run(self, name: str, request: Any, result: Path, work: Callable[[], None]) -> None:
        """Run a job unless it is done.

        :param request: all that decides the result, in values that JSON can express
        :param result: file or folder that the work leaves; if it is missing, the job runs again
        """
        if self.begin(name, request, result):
            work()
            self.complete(name, request)

    def begin(self, name: str, request: Any, result: Path) -> bool:
        """Report a job and return whether it is to be done, until :meth:`complete`."""
        if self.is_done(name, request, result):
            self.report(f"{name}: already done")
            self.skip(name, request)
            return False
        self.report(name)
        if f"done {name}" in self.manifest.entries():
            self.manifest.record(**{f"done {name}": None})
        return True

    def complete(self, name: str, request: Any) -> None:
        self.manifest.record(**{f"done {name}": self.digest_of([name, request])})
        self.skip(name, request)
