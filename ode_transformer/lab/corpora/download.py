"""Raw files of recipes, from a user's folder or downloaded, with their checksums.

A download lies in its folder under the path that its source names. ``.downloads/PATH/`` has the part that has come so
far and the record of the verified file; no source can name a path there. A file that was not downloaded is never
replaced, and a downloaded one only by a complete one.
"""

import http.client
import json
import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ode_transformer.lab.corpora.raw_archives import open_texts
from ode_transformer.lab.corpora.sources import AnySource, Copy, Source
from ode_transformer.support.console import ProgressMeter, print_progress
from ode_transformer.support.errors import UserError, did_you_mean
from ode_transformer.support.files import file_digest, file_stamp, lock_directory, write_text

Checksum = tuple[str, str]  # algorithm and value

READ_BYTES = 1 << 20  # in one call
TIMEOUT = 60.0  # seconds until a connection or the next byte must come
RETRY_PAUSES = (1.0, 2.0, 4.0, 8.0)  # seconds before the next attempt while attempts bring nothing
USER_AGENT = "Mozilla/5.0 (compatible; ode-transformer)"  # some servers refuse Python's own name
NETWORK_ERRORS = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError)


def obtain_files(
    names: Iterable[str], sources: Mapping[str, AnySource], raw: Path | None, folder: Path
) -> dict[str, Path]:
    """Return the paths of the files of some sources, downloaded if necessary.

    A record of each verified file is kept, so that it is hashed again only after it has changed. A user's own files are
    used where they are.

    :param raw: folder of the user, in which every file must be and to which nothing is written; None: download
    :raises UserError: there is no such source, a file is missing, has a wrong checksum or cannot be downloaded
    """
    names = list(names)
    if unknown := [name for name in names if name not in sources]:
        help_text = f"for a file of your own write 'sources: {{{unknown[0]}: FILE}}' into the recipe"
        raise UserError(f"{unknown[0]}: no such source{did_you_mean(unknown[0], sources)}; {help_text}")
    selected = {name: sources[name] for name in names}
    paths = {name: _local_path(source, raw, folder) for name, source in selected.items()}
    if missing := [
        f"{paths[name]} ({_origin(source)})"
        for name, source in selected.items()
        if not paths[name].is_file() and (raw or isinstance(source, Path) or source.obtain)
    ]:
        raise UserError(f"missing: {', '.join(missing)}")
    for name, source in selected.items():
        if not isinstance(source, Source):
            continue
        if raw is None and source.urls:
            _ensure_download(source, folder, sources)
        elif mistake := _checksum_mistake(paths[name], source, source.checksum, folder):
            raise UserError(f"{paths[name]}: {mistake}")
    return paths


def find_in_folder(raw: Path, source: AnySource) -> Path | None:
    """Return the path of a source in a user's folder, with or without compression by gzip; None if it is missing."""
    if isinstance(source, Path):
        return source if source.is_file() else None
    other_form = source.file.removesuffix(".gz") if source.file.endswith(".gz") else f"{source.file}.gz"
    return next((raw / name for name in (source.file, other_form) if (raw / name).is_file()), None)


def file_identity(path: Path, source: AnySource, folder: Path) -> list[object]:
    """Return values that change when a file does: its checksum if verified, else its size and modification time."""
    if isinstance(source, Source):
        record = _read_record(source, folder)
        if record.get("file") == _file_state(path):
            return list(record["checksum"])
    return file_stamp(path)


def _local_path(source: AnySource, raw: Path | None, folder: Path) -> Path:
    if isinstance(source, Path):
        return source
    return folder / source.file if raw is None else find_in_folder(raw, source) or raw / source.file


def _origin(source: AnySource) -> str:
    return "the recipe's own" if isinstance(source, Path) else source.obtain or source.urls[0]


def _checksum_mistake(path: Path, source: Source, expected: Checksum | None, folder: Path) -> str:
    """Compare a file with a checksum; record the file if it has it.

    :returns: the difference; empty if there is none, or no checksum
    """
    if expected is None:
        return ""
    if source.file.endswith(".gz") and path.suffix != ".gz":
        print_progress(f"{path}: used instead of {source.file}, whose checksum says nothing about it")
        return ""
    record = _read_record(source, folder)
    if record.get("file") == _file_state(path) and record["checksum"] == list(expected):
        return ""
    algorithm, value = expected
    digest = file_digest(path, algorithm, path.suffix == ".gz" and not source.file.endswith(".gz"))
    if digest != value:
        return f"{algorithm} {digest} instead of {value} (from {source.checksum_from or 'the first download'})"
    _write_record(path, source, expected, folder, downloaded=False)
    return ""


def _record_folder(source: Source, folder: Path) -> Path:
    return folder / ".downloads" / source.file


def _file_state(path: Path) -> list[object]:
    return [str(path.resolve()), *file_stamp(path)]


def _read_record(source: Source, folder: Path) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads((_record_folder(source, folder) / "file.verified").read_text("utf-8"))
    except FileNotFoundError:
        return {}
    return record


def _write_record(path: Path, source: Source, checksum: Checksum, folder: Path, downloaded: bool) -> None:
    records = _record_folder(source, folder)
    records.mkdir(parents=True, exist_ok=True)
    record = {"file": _file_state(path), "checksum": checksum, "urls": source.urls, "downloaded": downloaded}
    write_text(records / "file.verified", json.dumps(record))


def _ensure_download(source: Source, folder: Path, sources: Mapping[str, AnySource]) -> None:
    """Download a file unless it has been downloaded from one of its addresses before.

    :param sources: all, for the archives with a copy
    :raises UserError: no address gives the file, or another one that was not downloaded has its path
    """
    path, record = folder / source.file, _read_record(source, folder)
    has_moved = bool(record) and not source.checksum and not set(record["urls"]) & set(source.urls)
    expected = source.checksum or (tuple(record["checksum"]) if record and not has_moved else None)
    if path.is_file():
        mistake = "from another address than the source's" if has_moved else ""
        mistake = mistake or _checksum_mistake(path, source, expected, folder)
        if not mistake:
            if expected is None:
                _write_record(path, source, ("sha256", file_digest(path, "sha256")), folder, downloaded=False)
            return
        if not record.get("downloaded") or record["file"] != _file_state(path):
            raise UserError(f"{path}: {mistake}; it was not downloaded by this program, which leaves it: move it away")
        print_progress(f"{path}: {mistake}; it is downloaded again")
    with lock_directory(_record_folder(source, folder), f"downloading {source.file}"):
        _download(source, expected, folder, sources)


def _download(source: Source, expected: Checksum | None, folder: Path, sources: Mapping[str, AnySource]) -> None:
    """Download a file from the first of its addresses, or archives with a copy, that gives the right checksum."""
    path, part, reasons = folder / source.file, _record_folder(source, folder) / "file.part", []
    algorithm = expected[0] if expected else "sha256"
    origins: list[str | Copy] = [*source.urls, *source.copies]
    for origin in origins:
        name = origin.member if isinstance(origin, Copy) else origin
        print_progress(f"{source.file}: {name}")
        try:
            resumed = part.exists() and expected is not None and not isinstance(origin, Copy)
            _fetch(origin, part, resumed, folder, sources)
            digest = file_digest(part, algorithm)
            if resumed and (algorithm, digest) != expected:  # its parts are of different versions
                _fetch(origin, part, False, folder, sources)
                digest = file_digest(part, algorithm)
        except (UserError, *NETWORK_ERRORS) as error:
            reasons.append(f"{name}: {error}")
            continue
        size = part.stat().st_size
        if (expected is None or digest == expected[1]) and source.bytes in (None, size):
            path.parent.mkdir(parents=True, exist_ok=True)
            os.replace(part, path)
            _write_record(path, source, (algorithm, digest), folder, downloaded=True)
            return
        published = expected[1] if expected else f"{source.bytes:,} bytes"
        reasons.append(f"{name}: {size:,} bytes with {algorithm} {digest} instead of {published}")
        part.unlink()
    raise UserError(f"{source.file}: cannot be downloaded: {'; '.join(reasons)}; --raw takes a folder that has it")


def _fetch(origin: str | Copy, part: Path, resume: bool, folder: Path, sources: Mapping[str, AnySource]) -> None:
    """Write a file from an address, or from an archive that is downloaded if necessary, to a path.

    :param resume: append what is missing
    """
    if not resume:
        part.unlink(missing_ok=True)
    if isinstance(origin, str):
        transfer(origin, part)
        return
    archive = obtain_files([origin.source], sources, None, folder)[origin.source]
    with open(part, "wb") as file:
        for _, stream in open_texts(archive, origin.member):
            while block := stream.read(READ_BYTES):
                file.write(block)


def transfer(url: str, part: Path) -> None:
    """Append what is missing of the file at an address, in as many attempts as bring bytes.

    A full disk ends it with the system's own message; the part stays, and the next call continues it.
    """
    failures = 0
    while True:
        size = part.stat().st_size if part.exists() else 0
        try:
            _attempt(url, part, size)
            return
        except NETWORK_ERRORS as error:
            code = error.code if isinstance(error, urllib.error.HTTPError) else 0
            if code == 416 and size:  # no byte is missing; the checksum decides
                return
            failures = 0 if part.exists() and part.stat().st_size > size else failures + 1
            if failures >= len(RETRY_PAUSES) or (400 <= code < 500 and code not in (408, 429)):
                raise
            print_progress(f"  {url}: {error}; again in {RETRY_PAUSES[failures]:g} s")
            time.sleep(RETRY_PAUSES[failures])


def _attempt(url: str, part: Path, size: int) -> None:
    """Request the bytes after the first ``size``; a server that sends all of them starts the part anew."""
    headers = {"User-Agent": USER_AGENT} | ({"Range": f"bytes={size}-"} if size else {})
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        if answer.headers.get_content_type() == "text/html":  # the file has moved, or the server asks for a click
            raise UserError("answers with a page")
        with open(part, "ab" if answer.status == 206 else "wb") as file:
            length = answer.headers.get("Content-Length")
            total = file.tell() + int(length) if length else None
            meter = ProgressMeter(url.rpartition("/")[2], total, file.tell())
            while block := answer.read1(READ_BYTES):
                file.write(block)
                meter.update(file.tell(), " bytes")
            if total is not None and file.tell() < total:
                raise ConnectionError(f"{file.tell():,} bytes came of {total:,}")
