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
        """Return the entries; without a manifest, and below its lines, those that earlier versions kept in files."""
        entries = _earlier_entries(self.path.parent)
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


def _earlier_entries(folder: Path) -> dict[str, Any]:
    """Return the entries of a folder of an earlier version, which had a file for each of them."""
    entries: dict[str, Any] = {}
    for path in sorted(folder.glob("*.done")):
        entries[f"done {path.stem}"] = path.read_text(errors="replace")
    for name, entry in (("recipe.txt", "recipe"), ("study.txt", "study"), ("train.begun", "training")):
        if (folder / name).exists():
            entries[entry] = os.fsdecode((folder / name).read_bytes().strip())
    for name, entry in (("raw.json", "raw"), ("averaged.json", "averaged")):
        if (folder / name).exists():
            entries[entry] = json.loads((folder / name).read_text())
    return entries


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
        if self.is_done(name, request, result):
            self.report(f"{name}: already done")
        else:
            self.report(name)
            if f"done {name}" in self.manifest.entries():
                self.manifest.record(**{f"done {name}": None})
            work()
            self.manifest.record(**{f"done {name}": self.digest_of([name, request])})
        self.skip(name, request)
