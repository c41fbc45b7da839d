"""Download of one file over HTTP in several attempts, each of which requests only the missing bytes."""

from __future__ import annotations

import fcntl
import hashlib
import http.client
import json
import os
import re
import shutil
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType

from ode_transformer.corpora.http_answer import Deadline, content_length, is_page, open_url
from ode_transformer.support.console import ProgressMeter, print_progress
from ode_transformer.support.errors import UserError, one_line
from ode_transformer.support.files import write_text

READ_BYTES = 1 << 20  # in one call
MIN_FREE_BYTES = 1 << 28  # that a download leaves on the disk
READ_TIMEOUT = 60.0  # seconds until a connection or the next byte must come
PROGRESS_WINDOW = 120.0  # seconds in which at least MIN_BYTES_PER_WINDOW must come
MIN_BYTES_PER_WINDOW = 100_000
RETRY_PAUSES = (1.0, 2.0, 4.0, 8.0)  # seconds before the next attempt while attempts bring little
MIN_PROGRESS = 1 << 14  # bytes that an attempt must bring for the pauses to start again

_CONTENT_RANGE = re.compile(r"bytes (?:(\d{1,18})-\d{1,18}|\*)/(\d{1,18}|\*)")


class TransferError(Exception):
    """Reason, in a few words, why an address does not give the file."""


class TransferInterrupted(TransferError):
    """Failure that another attempt may not meet."""


class TransferTooSlow(TransferInterrupted):
    """Too few bytes came within ``PROGRESS_WINDOW``."""


class PartialFile:
    """Beginning of a downloaded file, in ``NAME.part``, with its address and version beside it for a later process.

    :param path: of the partial file; bytes that an earlier process left in it are kept
    :param algorithm: of the digest, which is computed while the file grows
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
            raise UserError(f"{path}: another process is downloading it") from error
        self.size = path.stat().st_size
        with open(path, "rb") as file:
            self._hash = hashlib.file_digest(file, algorithm)

    def __enter__(self) -> PartialFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.file.close()  # with it, the lock

    @property
    def digest(self) -> str:
        """Digest of the bytes so far, in hexadecimal."""
        return self._hash.hexdigest()

    def origin(self) -> tuple[str, str]:
        """Return the address of the bytes and their version (an ETag or a date); empty if unknown."""
        try:
            url, version = json.loads(self.origin_path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return "", ""
        return str(url), str(version)

    def restart(self, url: str = "", version: str = "") -> None:
        """Remove all bytes, to begin with another address or version."""
        self.file.truncate(0)
        self.size, self._hash = 0, hashlib.new(self.algorithm)
        write_text(self.origin_path, json.dumps([url, version]))

    def append(self, block: bytes) -> None:
        """Write a block at the end.

        :raises UserError: the disk is full
        """
        unwritten = memoryview(block)
        try:
            while unwritten:
                unwritten = unwritten[self.file.write(unwritten) :]
        except OSError as error:
            raise UserError(f"{self.path}: could not be written ({error.strerror}); its bytes so far stay") from error
        self._hash.update(block)
        self.size += len(block)

    def move_to(self, target: Path) -> None:
        """Give the complete file its final name."""
        os.fsync(self.file.fileno())
        os.replace(self.path, target)
        self.origin_path.unlink(missing_ok=True)

    def remove(self) -> None:
        """Delete the partial file and the record of its origin."""
        self.path.unlink(missing_ok=True)
        self.origin_path.unlink(missing_ok=True)


def transfer(url: str, partial: PartialFile, size: int | None, has_checksum: bool) -> None:
    """Complete a partial file from an address, in as many attempts as make progress.

    :param size: bytes of the whole file, if known
    :param has_checksum: a checksum will be compared, so bytes of two answers may be joined even if the server states
        no version
    :raises TransferError: the address does not give the file
    """
    failures = 0
    while True:
        size_before = partial.size
        try:
            _attempt(url, partial, size, has_checksum)
            return
        except TransferInterrupted as error:
            progressed = partial.size - size_before >= MIN_PROGRESS and not isinstance(error, TransferTooSlow)
            failures = 0 if progressed else failures + 1
            if failures >= len(RETRY_PAUSES):
                raise
            print_progress(f"  {url}: {error}; again in {RETRY_PAUSES[failures]:g} s")
            time.sleep(RETRY_PAUSES[failures])


def remote_size(url: str) -> int | None:
    """Return the number of bytes at an address, if the server states it."""
    request = urllib.request.Request(url, method="HEAD")
    try:
        with Deadline(PROGRESS_WINDOW) as deadline, open_url(request, deadline, READ_TIMEOUT) as answer:
            return content_length(answer)
    except (OSError, http.client.HTTPException, ValueError):
        return None


def _attempt(url: str, partial: PartialFile, size: int | None, has_checksum: bool) -> None:
    if partial.size and partial.size == size:
        return
    request = urllib.request.Request(url)
    origin, version = partial.origin()
    if partial.size and origin == url and (version or has_checksum):
        request.add_header("Range", f"bytes={partial.size}-")
        if version:
            request.add_header("If-Range", version)
    with Deadline(PROGRESS_WINDOW) as deadline:
        try:
            with open_url(request, deadline, READ_TIMEOUT) as answer:
                _receive(answer, url, partial, size, deadline)
        except urllib.error.HTTPError as error:
            if not _is_complete(error, partial, request.has_header("Range")):
                temporary = error.code in (408, 429) or error.code >= 500
                kind = TransferInterrupted if temporary else TransferError
                raise kind(one_line(f"{error.code} {error.reason}")) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            if deadline.expired:
                too_slow = f"fewer than {MIN_BYTES_PER_WINDOW:,} bytes came in {PROGRESS_WINDOW:g} s"
                raise TransferTooSlow(too_slow) from error
            malformed = isinstance(error, ValueError | http.client.InvalidURL)  # the address of a redirect: for good
            raise (TransferError if malformed else TransferInterrupted)(_reason(error)) from error


def _is_complete(error: urllib.error.HTTPError, partial: PartialFile, range_requested: bool) -> bool:
    """Return whether an error says that no byte follows those of the partial file.

    :raises TransferInterrupted: the file on the server has become shorter
    """
    if error.code != 416 or not range_requested:
        return False
    if _content_range(error)[1] == partial.size:
        return True
    partial.restart()
    raise TransferInterrupted("the file has become shorter") from error


def _receive(
    answer: http.client.HTTPResponse, url: str, partial: PartialFile, size: int | None, deadline: Deadline
) -> None:
    if answer.status == 206:
        start, total = _content_range(answer)
        if start != partial.size:
            partial.restart()
            raise TransferInterrupted("the server sent another range than the requested one")
    else:
        total = content_length(answer)
        if total is None and (stated := answer.headers.get("Content-Length")) is not None:
            raise TransferError(one_line(f"states an impossible length, {stated[:40]}"))
    if is_page(answer):  # the file has moved, or the server asks for a click
        raise TransferError("answers with a page")
    if size is not None and total is not None and total != size:
        raise TransferError(f"has {total:,} bytes instead of {size:,}")
    if answer.status != 206:
        partial.restart(url, _version(answer))
    _receive_body(answer, url, partial, size or total, deadline)


def _receive_body(
    answer: http.client.HTTPResponse, url: str, partial: PartialFile, total: int | None, deadline: Deadline
) -> None:
    meter, unconfirmed = ProgressMeter(url.rpartition("/")[2], total), 0
    while block := answer.read1(READ_BYTES):
        partial.append(block)
        meter.update(partial.size, " bytes")
        if total is not None and partial.size > total:
            partial.restart()
            raise TransferError(f"has more than {total:,} bytes")
        check_free_space(partial.path.parent)
        unconfirmed += len(block)
        if unconfirmed >= MIN_BYTES_PER_WINDOW:
            deadline.extend()
            unconfirmed = 0
    if deadline.expired:
        raise TimeoutError("timed out")
    if total is not None and partial.size < total:
        raise TransferInterrupted(f"{partial.size:,} bytes came of {total:,}")
    if not partial.size:
        raise TransferInterrupted("nothing came")


def check_free_space(folder: Path, needed: int = 0) -> None:
    """Check that a download leaves ``MIN_FREE_BYTES`` on the disk.

    :param needed: bytes still to be written
    :raises UserError: it would not
    """
    free = shutil.disk_usage(folder).free
    if needed + MIN_FREE_BYTES > free:
        to_come = f"{needed / 1e6:,.1f} MB are to be downloaded, and " if needed else ""
        reserve = f"{MIN_FREE_BYTES / 1e6:,.1f} MB{' more' if needed else ''} have to stay free"
        raise UserError(f"{folder}: {to_come}{reserve}, but {free / 1e6:,.1f} MB are")


def _version(answer: http.client.HTTPResponse) -> str:
    """Return what ``If-Range`` may state: a strong ETag, or else the date."""
    tag = answer.headers.get("ETag", "")
    return tag if tag.startswith('"') else answer.headers.get("Last-Modified", "")


def _content_range(answer: http.client.HTTPResponse | urllib.error.HTTPError) -> tuple[int | None, int | None]:
    """Return the first byte of an answer's range, and the size of the whole file."""
    match = _CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range", "").strip())
    if match is None:
        return None, None
    start, total = match.groups()
    return (None if start is None else int(start)), (None if total == "*" else int(total))


def _reason(error: Exception) -> str:
    return one_line(str(getattr(error, "reason", None) or error) or type(error).__name__)
