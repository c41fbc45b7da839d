"""Fetches a file over HTTP so that an interruption costs little: what has come stays, only the rest is asked for."""

from __future__ import annotations

import fcntl
import hashlib
import http.client
import json
import os
import re
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType

from ode_transformer.support.console import ProgressMeter, print_progress
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import write_text

BLOCK = 1 << 20  # bytes
TIMEOUT = 60.0  # seconds without an answer or a byte
PAUSES = (1.0, 2.0, 4.0, 8.0)  # seconds before the next attempt, as long as attempts bring nothing
AGENT = "Mozilla/5.0 (compatible; ode-transformer)"  # some servers refuse Python's own name


class TransferError(Exception):
    """Why an address does not give the file, in a few words."""


class Interrupted(TransferError):
    """A failure that another attempt may not meet."""


class Part:
    """The beginning of a file, in ``NAME.part``; what it has come from is written beside it, for a later process.

    :param path: where it is kept; what an earlier process left there is continued
    :param algorithm: of the digest that is computed while the file grows
    :raises UserError: another process is writing it
    """

    def __init__(self, path: Path, algorithm: str) -> None:
        self.path, self.algorithm = path, algorithm
        self.origin_path = path.with_name(f"{path.name}.origin")
        self.file = open(path, "ab", buffering=0)  # noqa: SIM115  (this object is the context)
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.file.close()
            raise UserError(f"{path}: another process is fetching it") from error
        self.size = path.stat().st_size
        with open(path, "rb") as file:
            self._digest = hashlib.file_digest(file, algorithm)

    def __enter__(self) -> Part:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.file.close()  # with it, the lock

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def origin(self) -> tuple[str, str]:
        """The address that the bytes are from, and what tells its version (an ETag or a date); empty if unknown."""
        try:
            url, version = json.loads(self.origin_path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return "", ""
        return str(url), str(version)

    def restart(self, url: str = "", version: str = "") -> None:
        """Forgets what has come, to begin with another address or version."""
        self.file.truncate(0)
        self.size, self._digest = 0, hashlib.new(self.algorithm)
        write_text(self.origin_path, json.dumps([url, version]))

    def append(self, block: bytes) -> None:
        rest = memoryview(block)
        try:
            while rest:
                rest = rest[self.file.write(rest) :]
        except OSError as error:
            raise UserError(f"{self.path}: could not be written ({error.strerror}); what has come stays") from error
        self._digest.update(block)
        self.size += len(block)

    def become(self, target: Path) -> None:
        """Puts the whole file in its place."""
        os.fsync(self.file.fileno())
        os.replace(self.path, target)
        self.origin_path.unlink(missing_ok=True)

    def discard(self) -> None:
        self.path.unlink(missing_ok=True)
        self.origin_path.unlink(missing_ok=True)


def transfer(url: str, part: Part, expected: int | None, safe: bool) -> None:
    """Completes a part from an address, with several attempts as long as there is hope.

    :param expected: bytes of the whole file, if that is known
    :param safe: a checksum will be compared, so that bytes may be joined although the server tells no versions apart
    :raises TransferError: the address does not give the file
    """
    failures = 0
    while True:
        before = part.size
        try:
            _attempt(url, part, expected, safe)
            return
        except Interrupted as error:
            failures = 0 if part.size > before else failures + 1
            if failures >= len(PAUSES):
                raise
            print_progress(f"  {url}: {error}; again in {PAUSES[failures]:g} s")
            time.sleep(PAUSES[failures])


def size_of(url: str) -> int | None:
    """How many bytes an address has, if it says so."""
    request = urllib.request.Request(url, method="HEAD", headers={"User-Agent": AGENT})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            return _length(answer)
    except (OSError, http.client.HTTPException):
        return None


def _attempt(url: str, part: Part, expected: int | None, safe: bool) -> None:
    if part.size and part.size == expected:
        return
    request = urllib.request.Request(url, headers={"User-Agent": AGENT})
    origin, version = part.origin()
    if part.size and origin == url and (version or safe):
        request.add_header("Range", f"bytes={part.size}-")
        if version:
            request.add_header("If-Range", version)
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # there is nothing after what has come
            if _range(error)[1] == part.size:
                return
            part.restart()
            raise Interrupted("the file has become shorter") from error
        passing = error.code in (408, 429) or error.code >= 500
        raise (Interrupted if passing else TransferError)(f"{error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        raise Interrupted(_reason(error)) from error
    with answer:
        if answer.status == 206:
            start, total = _range(answer)
            if start != part.size:
                part.restart()
                raise Interrupted("the server sent another part than it was asked for")
        else:
            total = _length(answer)
        if answer.headers.get_content_type() == "text/html":  # what has been moved or asks for a click
            raise TransferError("answers with a page")
        if expected is not None and total is not None and total != expected:
            raise TransferError(f"has {total:,} bytes instead of {expected:,}")
        if answer.status != 206:
            part.restart(url, _version(answer))
        _read(answer, part, url, expected or total)


def _read(answer: http.client.HTTPResponse, part: Part, url: str, total: int | None) -> None:
    meter = ProgressMeter(url.rpartition("/")[2], total)
    try:
        while block := answer.read1(BLOCK):
            part.append(block)
            meter.update(part.size, " bytes")
    except (OSError, http.client.HTTPException) as error:
        raise Interrupted(_reason(error)) from error
    if total is not None and part.size > total:
        part.restart()
        raise TransferError(f"has more than {total:,} bytes")
    if total is not None and part.size < total:
        raise Interrupted(f"{part.size:,} bytes came of {total:,}")
    if not part.size:
        raise Interrupted("nothing came")


def _version(answer: http.client.HTTPResponse) -> str:
    """What If-Range may say: a strong ETag, or else the date."""
    tag = answer.headers.get("ETag", "")
    return tag if tag.startswith('"') else answer.headers.get("Last-Modified", "")


def _length(answer: http.client.HTTPResponse) -> int | None:
    length = answer.headers.get("Content-Length", "")
    return int(length) if length.isdecimal() else None


def _range(answer: http.client.HTTPResponse | urllib.error.HTTPError) -> tuple[int | None, int | None]:
    """The first byte of an answer's range, and the bytes of the whole file."""
    found = re.match(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)", answer.headers.get("Content-Range", ""))
    if found is None:
        return None, None
    start, total = found.groups()
    return (None if start is None else int(start)), (None if total == "*" else int(total))


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", None) or error) or type(error).__name__
