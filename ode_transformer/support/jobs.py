"""Resumable jobs: a job whose request has not changed and whose result is still there is skipped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ode_transformer.support.console import print_heading
from ode_transformer.support.files import write_text


class Jobs:
    """A chain of jobs, each identified by a digest of its own request and of all requests before it.

    A job is skipped if it was completed with the same digest and its result still exists; a changed request
    runs it and all jobs after it again.

    :param directory: where the digests of completed jobs are recorded, each in ``NAME.done``
    :param digest: of what the chain builds on, such as another chain
    :param report: called with a line for each job that starts or is skipped
    """

    def __init__(self, directory: Path, digest: str = "", report: Callable[[str], None] = print_heading) -> None:
        self.directory = directory
        self.digest = digest
        self.report = report

    def digest_of(self, request: Any) -> str:
        """Return the digest of a request that follows the jobs so far."""
        return hashlib.sha256(json.dumps([self.digest, request], default=str).encode()).hexdigest()

    def is_done(self, name: str, request: Any, result: Path) -> bool:
        """Return whether a job was completed with this request and its result still exists."""
        record = self.directory / f"{name}.done"
        return result.exists() and record.exists() and record.read_bytes() == self.digest_of([name, request]).encode()

    def skip(self, name: str, request: Any) -> None:
        """Add a completed job to the chain without running it."""
        self.digest = self.digest_of([name, request])

    def run(self, name: str, request: Any, result: Path, work: Callable[[], None]) -> None:
        """Run a job unless it is done.

        :param name: of the job and of its record
        :param request: all that decides the result, in values that JSON can express
        :param result: file or folder that the work leaves; if it is missing, the job runs again
        :param work: called without arguments to do the job
        """
        digest = self.digest_of([name, request])
        record = self.directory / f"{name}.done"
        if self.is_done(name, request, result):
            self.report(f"{name}: already done")
        else:
            self.report(name)
            record.unlink(missing_ok=True)
            work()
            self.directory.mkdir(parents=True, exist_ok=True)
            write_text(record, digest)
        self.digest = digest
