"""Raw files of recipes, from a user's folder or downloaded, with their checksums; ``configs/sources.yaml`` lists all.

A download lies in its folder under the path that its source names. ``.downloads/PATH/`` has the part that has come so
far and the record of the verified file; no source can name a path there. A file that is there is never replaced.
"""

import json
import shutil
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import httpx2
from pydantic import Field, RootModel, StringConstraints

from ode_transformer.lab.corpora.raw_text import open_texts
from ode_transformer.support.console import ProgressMeter, print_progress
from ode_transformer.support.errors import UserError, did_you_mean, one_line
from ode_transformer.support.files import (
    file_digest,
    file_stamp,
    lock_directory,
    move_into_place,
    read_json,
    write_text,
)
from ode_transformer.support.yaml_file import CONFIGS, YamlSection, read_yaml

TIMEOUT = 60.0  # seconds until a connection or the next byte must come
RETRY_PAUSES = (1.0, 2.0, 4.0, 8.0)  # seconds before the next attempt while attempts bring nothing
HEADERS = {
    "User-Agent": "Mozilla/5.0 (compatible; ode-transformer)",  # some servers refuse the name of a program
    "Accept-Encoding": "identity",  # the bytes of a compressed answer could not be continued
}

SOURCES_FILE = CONFIGS / "sources.yaml"

Url = Annotated[str, StringConstraints(pattern=r"^https?://[^\s/]+/\S+$")]


class Copy(YamlSection):
    """A copy of a raw file: a member of another one, which is an archive."""

    source: str
    member: str


class Source(YamlSection):
    """One raw file: published at an address, or sent by its owner on request; the source list explains the keys."""

    file: Annotated[str, StringConstraints(pattern=r"^[^./][^/]*(/[^./][^/]*)*$")]  # no part begins with a full stop
    urls: list[Url] = []
    copies: list[Copy] = []
    single_host: str | None = None
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] | None = None
    md5: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")] | None = None
    checksum_from: str | None = None
    bytes: Annotated[int, Field(gt=0)] | None = None
    licence: str
    obtain: str | None = None

    @property
    def checksum(self) -> tuple[str, str] | None:
        """Algorithm and value of the published checksum."""
        if self.sha256:
            return "sha256", self.sha256
        return ("md5", self.md5) if self.md5 else None


AnySource = Source | Path  # a raw file that is published, or the path of a user's own file
Sources = Mapping[str, AnySource]  # the source list, with the recipe's own, by name


def read_sources(path: Path = SOURCES_FILE) -> dict[str, Source]:
    return read_yaml(path, RootModel[dict[str, Source]]).root


def obtain_files(names: Iterable[str], sources: Sources, raw: Path | None, folder: Path) -> dict[str, Path]:
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
    paths = {name: local_path(sources[name], raw, folder) for name in names}
    missing = [name for name, path in paths.items() if not path.is_file() and (raw or not _has_address(sources[name]))]
    if missing:
        raise UserError(f"missing: {', '.join(f'{paths[name]} ({_origin(sources[name])})' for name in missing)}")
    for name, path in paths.items():
        source = sources[name]
        if isinstance(source, Path):
            continue
        if not path.is_file():
            with lock_directory(_record_folder(source, folder), f"downloading {source.file}"):
                _download(source, folder, sources)
        elif (raw is None or source.checksum) and (mistake := _checksum_mistake(path, source, folder)):
            advice = "; move it away to download it" if raw is None else ""
            raise UserError(f"{path}: {mistake}{advice}")
    return paths


def local_path(source: AnySource, raw: Path | None, folder: Path) -> Path:
    """Return the path of a source; a file of the user's folder may be compressed by gzip, or may be no longer."""
    if isinstance(source, Path):
        return source
    path = (raw or folder) / source.file
    other_form = path.with_suffix("") if path.suffix == ".gz" else path.with_name(f"{path.name}.gz")
    return other_form if raw and not path.is_file() and other_form.is_file() else path


def file_identity(path: Path, source: AnySource, folder: Path) -> list[object]:
    """Return values that change when a file does: its checksum if verified, else its size and modification time."""
    if isinstance(source, Source):
        record = _read_record(source, folder)
        if record.get("file") == _file_state(path):
            return list(record["checksum"])
    return file_stamp(path)


def _has_address(source: AnySource) -> bool:
    return isinstance(source, Source) and not source.obtain


def _origin(source: AnySource) -> str:
    return "the recipe's own" if isinstance(source, Path) else source.obtain or source.urls[0]


def _checksum_mistake(path: Path, source: Source, folder: Path) -> str:
    """Return the difference between a file and its checksum; empty if there is none, or no checksum."""
    record = _read_record(source, folder)
    expected = source.checksum or record.get("checksum")
    if expected is None or record == {"file": _file_state(path), "checksum": list(expected)}:
        return ""
    if source.file.endswith(".gz") and path.suffix != ".gz":
        print_progress(f"{path}: used instead of {source.file}, whose checksum says nothing about it")
        return ""
    algorithm, value = expected
    digest = file_digest(path, algorithm, decompress=path.suffix == ".gz" and not source.file.endswith(".gz"))
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


def _write_record(path: Path, source: Source, checksum: tuple[str, str], folder: Path) -> None:
    records = _record_folder(source, folder)
    records.mkdir(parents=True, exist_ok=True)
    write_text(records / "file.verified", json.dumps({"file": _file_state(path), "checksum": checksum}))


def _download(source: Source, folder: Path, sources: Sources) -> None:
    """Download a file from the first of its addresses, or archives with a copy, that gives the right checksum."""
    path, partial, reasons = folder / source.file, _record_folder(source, folder) / "file.part", []
    algorithm, value = source.checksum or _read_record(source, folder).get("checksum") or ("sha256", None)
    origins: list[str | Copy] = [*source.urls, *source.copies]
    for origin in origins:
        name = origin.member if isinstance(origin, Copy) else origin
        print_progress(f"{source.file}: {name}")
        if value is None:  # nothing would tell whether the rest belongs to the part that an earlier run has left
            partial.unlink(missing_ok=True)
        try:
            if isinstance(origin, Copy):
                archive = obtain_files([origin.source], sources, None, folder)[origin.source]
                with open(partial, "wb") as file:
                    for _, stream in open_texts(archive, origin.member):
                        shutil.copyfileobj(stream, file)
            else:
                _transfer(origin, partial, source.bytes, is_checked=value is not None)
        except (UserError, httpx2.HTTPError) as error:
            reasons.append(f"{name}: {one_line(error)}")
            continue
        size, digest = partial.stat().st_size, file_digest(partial, algorithm)
        if not size:
            reasons.append(f"{name}: answers without a byte")
            partial.unlink()
            continue
        with open(partial, "rb") as file:
            is_packed = file.read(2) == b"\x1f\x8b" and not source.file.endswith(("gz", ".zip"))
        if value in (None, digest) and source.bytes in (None, size) and not is_packed:
            path.parent.mkdir(parents=True, exist_ok=True)
            move_into_place(partial, path)
            _write_record(path, source, (algorithm, digest), folder)
            if source.checksum is None:
                print_progress(f"{path}: sha256 {digest}; none is published, so compare it with that of other machines")
            return
        expected = value or (f"{source.bytes:,} bytes" if source.bytes else "a file without gzip")
        reasons.append(f"{name}: {size:,} bytes with {algorithm} {digest} instead of {expected}")
        partial.unlink()
    raise UserError(f"{source.file}: cannot be downloaded: {'; '.join(reasons)}; --raw takes a folder that has it")


def _transfer(url: str, partial: Path, limit: int | None, is_checked: bool) -> None:
    """Download the file at an address, from where its part ends, in as many attempts as bring bytes.

    Without a checksum a part is continued only while all answers name one version of the file. A full disk ends it
    with the system's own message; the part stays, and the next call continues it.
    """
    failures, reached, versions = 0, 0, set[str]()
    while True:
        if not is_checked and len(versions) != 1:
            partial.unlink(missing_ok=True)
        size = partial.stat().st_size if partial.exists() else 0
        try:
            _attempt(url, partial, size, limit, versions)
            return
        except httpx2.HTTPError as error:
            code = error.response.status_code if isinstance(error, httpx2.HTTPStatusError) else 0
            if code == 416 and size:  # the file has no bytes behind the part
                partial.unlink()
                continue
            size = partial.stat().st_size if partial.exists() else 0
            failures, reached = (0, size) if size > reached else (failures + 1, reached)
            if failures >= len(RETRY_PAUSES) or (400 <= code < 500 and code not in (408, 429)):
                raise
            print_progress(f"  {url}: {one_line(error)}; again in {RETRY_PAUSES[failures]:g} s")
            time.sleep(RETRY_PAUSES[failures])


def _attempt(url: str, partial: Path, size: int, limit: int | None, versions: set[str]) -> None:
    """Request the bytes behind a part of some size; a server that knows no ranges sends the whole file.

    :param versions: of the file, as answers name them; that of this answer is added
    """
    headers = HEADERS | ({"Range": f"bytes={size}-"} if size else {})
    with httpx2.stream("GET", url, headers=headers, timeout=TIMEOUT, follow_redirects=True) as answer:
        answer.raise_for_status()
        if answer.headers.get("Content-Type", "").startswith("text/html"):  # it has moved, or asks for a click
            raise UserError("answers with a page")
        if answer.status_code != 206:
            size = 0
            versions.clear()
        if version := answer.headers.get("ETag") or answer.headers.get("Last-Modified"):
            versions.add(version)
        length = answer.headers.get("Content-Length")
        meter = ProgressMeter(url.rpartition("/")[2], size + int(length) if length else None, size)
        with open(partial, "ab" if size else "wb") as file:
            for block in answer.iter_bytes():
                if limit is not None and file.tell() + len(block) > limit:
                    raise UserError(f"more than the {limit:,} bytes of the file")
                file.write(block)
                meter.update(file.tell(), " bytes")
            end = file.tell()
        if size and (len(versions) > 1 or answer.headers.get("Content-Range") != f"bytes {size}-{end - 1}/{end}"):
            partial.unlink()
            raise httpx2.RemoteProtocolError("answers with other bytes than it was asked for")
