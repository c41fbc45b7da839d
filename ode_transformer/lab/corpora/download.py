"""Raw files of recipes, from a user's folder or downloaded, with their checksums.

A download lies in its folder under the path that its source names. ``.downloads/PATH/`` has the part that has come so
far, its version, and the record of the verified file; no source can name a path there. A file that is there is never
replaced.
"""

import json
import os
import shutil
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import httpx2

from ode_transformer.lab.corpora.raw_archives import open_texts
from ode_transformer.lab.corpora.sources import AnySource, Copy, Source
from ode_transformer.support.console import ProgressMeter, print_progress
from ode_transformer.support.errors import UserError, did_you_mean, one_line
from ode_transformer.support.files import file_digest, file_stamp, lock_directory, read_json, write_text

Checksum = tuple[str, str]  # algorithm and value

TIMEOUT = 60.0  # seconds until a connection or the next byte must come
RETRY_PAUSES = (1.0, 2.0, 4.0, 8.0)  # seconds before the next attempt while attempts bring nothing
HEADERS = {
    "User-Agent": "Mozilla/5.0 (compatible; ode-transformer)",  # some servers refuse the name of a program
    "Accept-Encoding": "identity",  # the bytes of a compressed answer could not be continued
}


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
        if not paths[name].is_file():
            with lock_directory(_record_folder(source, folder), f"downloading {source.file}"):
                _download(source, folder, sources)
        elif (raw is None or source.checksum) and (mistake := _checksum_mistake(paths[name], source, folder)):
            advice = "; move it away to download it" if raw is None else ""
            raise UserError(f"{paths[name]}: {mistake}{advice}")
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


def _checksum_mistake(path: Path, source: Source, folder: Path) -> str:
    """Return the difference between a file and its checksum; empty if there is none, or no checksum."""
    record = _read_record(source, folder)
    expected = source.checksum or record.get("checksum")
    if expected is None:
        return ""
    if source.file.endswith(".gz") and path.suffix != ".gz":
        print_progress(f"{path}: used instead of {source.file}, whose checksum says nothing about it")
        return ""
    if record == {"file": _file_state(path), "checksum": list(expected)}:
        return ""
    algorithm, value = expected
    digest = file_digest(path, algorithm, path.suffix == ".gz" and not source.file.endswith(".gz"))
    if digest != value:
        return f"{algorithm} {digest} instead of {value} (from {source.checksum_from or 'the first download'})"
    _write_record(path, source, expected, folder)
    return ""


def _record_folder(source: Source, folder: Path) -> Path:
    return folder / ".downloads" / source.file


def _file_state(path: Path) -> list[object]:
    return [str(path.resolve()), *file_stamp(path)]


def _read_record(source: Source, folder: Path) -> dict[str, Any]:
    """Return path, size and time of the verified file of a source as ``file``, and its ``checksum``; empty without."""
    path = _record_folder(source, folder) / "file.verified"
    return dict(read_json(path)) if path.exists() else {}


def _write_record(path: Path, source: Source, checksum: Checksum, folder: Path) -> None:
    records = _record_folder(source, folder)
    records.mkdir(parents=True, exist_ok=True)
    write_text(records / "file.verified", json.dumps({"file": _file_state(path), "checksum": checksum}))


def _download(source: Source, folder: Path, sources: Mapping[str, AnySource]) -> None:
    """Download a file from the first of its addresses, or archives with a copy, that gives the right checksum.

    :param sources: all, for the archives with a copy
    :raises UserError: no address gives the file
    """
    path, partial, reasons = folder / source.file, _record_folder(source, folder) / "file.part", []
    algorithm, value = source.checksum or _read_record(source, folder).get("checksum") or ("sha256", None)
    origins: list[str | Copy] = [*source.urls, *source.copies]
    for origin in origins:
        name = origin.member if isinstance(origin, Copy) else origin
        print_progress(f"{source.file}: {name}")
        try:
            if isinstance(origin, Copy):
                _extract(origin, partial, folder, sources)
            else:
                transfer(origin, partial, source.bytes)
        except (UserError, httpx2.HTTPError) as error:
            reasons.append(f"{name}: {one_line(error)}")
            continue
        size, digest = partial.stat().st_size, file_digest(partial, algorithm)
        with open(partial, "rb") as file:
            is_packed = file.read(2) == b"\x1f\x8b" and not source.file.endswith(("gz", ".zip"))
        _version_file(partial).unlink(missing_ok=True)
        if value in (None, digest) and source.bytes in (None, size) and not is_packed:
            path.parent.mkdir(parents=True, exist_ok=True)
            os.replace(partial, path)
            _write_record(path, source, (algorithm, digest), folder)
            if source.checksum is None:
                print_progress(f"{path}: sha256 {digest}; none is published, so compare it with that of other machines")
            return
        published = value or (f"{source.bytes:,} bytes" if source.bytes else "a file without gzip")
        reasons.append(f"{name}: {size:,} bytes with {algorithm} {digest} instead of {published}")
        partial.unlink()
    raise UserError(f"{source.file}: cannot be downloaded: {'; '.join(reasons)}; --raw takes a folder that has it")


def _extract(copy: Copy, partial: Path, folder: Path, sources: Mapping[str, AnySource]) -> None:
    """Write a file from an archive, which is downloaded if necessary."""
    archive = obtain_files([copy.source], sources, None, folder)[copy.source]
    with open(partial, "wb") as file:
        for _, stream in open_texts(archive, copy.member):
            shutil.copyfileobj(stream, file)


def _version_file(partial: Path) -> Path:
    """Return the file with the address of a part and the ETag or date of the version that it is of."""
    return partial.with_suffix(".version")


def transfer(url: str, partial: Path, limit: int | None = None) -> None:
    """Download the file at an address, in as many attempts as bring bytes; what has come of the same version stays.

    A full disk ends it with the system's own message; the part stays, and the next call continues it.

    :param limit: bytes that the file must not exceed
    :raises UserError: it does, or the address answers with a page
    """
    failures = 0
    while True:
        size = partial.stat().st_size if partial.exists() else 0
        try:
            _attempt(url, partial, limit)
            return
        except httpx2.HTTPError as error:
            code = error.response.status_code if isinstance(error, httpx2.HTTPStatusError) else 0
            if code == 416 and _version_file(partial).exists():  # it is asked for as a whole
                _version_file(partial).unlink()
                continue
            failures = 0 if partial.exists() and partial.stat().st_size > size else failures + 1
            if failures >= len(RETRY_PAUSES) or (400 <= code < 500 and code not in (408, 429)):
                raise
            print_progress(f"  {url}: {one_line(error)}; again in {RETRY_PAUSES[failures]:g} s")
            time.sleep(RETRY_PAUSES[failures])


def _attempt(url: str, partial: Path, limit: int | None) -> None:
    """Request what is missing of a part of the same version, else the whole file."""
    headers, version_file, size = HEADERS, _version_file(partial), 0
    if partial.exists() and version_file.exists():
        address, _, version = version_file.read_text(encoding="utf-8").partition("\n")
        if address == url:
            size = partial.stat().st_size
            headers = HEADERS | {"Range": f"bytes={size}-", "If-Range": version}
    with httpx2.stream("GET", url, headers=headers, timeout=TIMEOUT, follow_redirects=True) as answer:
        answer.raise_for_status()
        if answer.headers.get("Content-Type", "").startswith("text/html"):  # it has moved, or asks for a click
            raise UserError("answers with a page")
        byte_range = answer.headers.get("Content-Range", "")
        if answer.status_code == 206 and not byte_range.startswith(f"bytes {size}-"):
            version_file.unlink(missing_ok=True)
            raise httpx2.RemoteProtocolError("answers with other bytes than it was asked for")
        if answer.status_code != 206:
            size = 0
            version_file.unlink(missing_ok=True)
            etag, date = answer.headers.get("ETag", ""), answer.headers.get("Last-Modified", "")
            version = date if etag.startswith("W/") or not etag else etag
            if version and "Content-Encoding" not in answer.headers:
                write_text(version_file, f"{url}\n{version}")
        length = answer.headers.get("Content-Length")
        meter = ProgressMeter(url.rpartition("/")[2], size + int(length) if length else None, size)
        with open(partial, "ab" if size else "wb") as file:
            for block in answer.iter_bytes():
                if limit is not None and file.tell() + len(block) > limit:
                    raise UserError(f"more than the {limit:,} bytes of the file")
                file.write(block)
                meter.update(file.tell(), " bytes")
        if answer.status_code == 206 and byte_range.rpartition("/")[2] not in ("*", str(partial.stat().st_size)):
            version_file.unlink(missing_ok=True)
            raise httpx2.RemoteProtocolError("answers with fewer bytes than it was asked for")
