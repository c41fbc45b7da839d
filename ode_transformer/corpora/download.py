"""Brings the raw files of a recipe together, from a user's folder or over the network: every one whole and right."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ode_transformer.corpora.sources import Source, select
from ode_transformer.corpora.transfer import Part, TransferError, size_of, transfer
from ode_transformer.support.console import print_progress
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import write_text

MARGIN = 1 << 28  # bytes that have to stay free
Checksum = tuple[str, str]  # algorithm and value


def obtain(names: Iterable[str], catalogue: Mapping[str, Source], raw: Path | None, folder: Path) -> dict[str, Path]:
    """The files of some sources, by name.

    :param raw: a folder of the user's, in which every file has to be and to which nothing is written; None downloads
    :param folder: of the downloads, and of the records that spare the hashing of a file that has not changed
    :raises UserError: files are missing, not right or not to be had; there is no room for them
    """
    sources = select(names, catalogue)
    if raw is not None:
        paths = _given(sources, raw)
        for name, path in paths.items():
            if wrong := _difference(path, sources[name], folder, sources[name].checksum):
                raise UserError(f"{path}: {wrong}")
        return paths
    paths = {name: folder / source.file for name, source in sources.items()}
    asked_for = {paths[name]: source.obtain for name, source in sources.items() if source.obtain}
    if missing := [f"{path}: missing: {how}" for path, how in asked_for.items() if not path.is_file()]:
        raise UserError("; ".join(missing))
    absent = [source for source in sources.values() if not source.obtain and not _is_right(source, folder)]
    for source in absent:
        (folder / source.file).parent.mkdir(parents=True, exist_ok=True)
    _require_room(absent, folder)
    for source in absent:
        _fetch(source, folder)
    return paths


def fingerprint(path: Path, source: Source, folder: Path) -> list[object]:
    """The checksum of a file if it has been verified, else its size and time of change."""
    record = _recorded(source, folder)
    checksum = record.get("checksum")
    if checksum and record == _state(path, tuple(checksum)):
        return list(checksum)
    known = path.stat()
    return [known.st_size, known.st_mtime_ns]


def forget(source: Source, folder: Path) -> None:
    """Removes a download, and what is known of it, so that it is fetched anew."""
    (folder / source.file).unlink(missing_ok=True)
    _record(source, folder).unlink(missing_ok=True)


def _given(sources: Mapping[str, Source], raw: Path) -> dict[str, Path]:
    """Where the files are in the user's folder."""
    if not raw.is_dir():
        raise UserError(f"--raw {raw}: no such folder")
    found = {name: lies_in(raw, source) for name, source in sources.items()}
    missing = [
        f"{sources[n].file} ({sources[n].obtain or sources[n].urls[0]})" for n, path in found.items() if not path
    ]
    if missing:
        raise UserError(f"--raw {raw}: missing there: {', '.join(missing)}")
    return {name: path for name, path in found.items() if path}


def lies_in(raw: Path, source: Source) -> Path | None:
    """Where a source is in a user's folder, compressed by gzip or not."""
    file = source.file
    twin = file.removesuffix(".gz") if file.endswith(".gz") else f"{file}.gz"
    return next((raw / name for name in (file, twin) if (raw / name).is_file()), None)


def _is_right(source: Source, folder: Path) -> bool:
    """Whether a download is there; one that is broken is removed."""
    path, expected = folder / source.file, _expected(source, folder)
    if not path.is_file():
        return False
    if expected is None:  # no record was written before the process died
        _remember(path, source, folder, ("sha256", _digest(path, "sha256", inside=False)))
    elif wrong := _difference(path, source, folder, expected):
        print_progress(f"{path}: {wrong}; it is fetched anew")
        path.unlink()
        return False
    return True


def _difference(path: Path, source: Source, folder: Path, expected: Checksum | None) -> str:
    """What distinguishes a file from what it has to be; empty if nothing, which is then recorded."""
    if path.suffix != ".gz" and source.file.endswith(".gz"):
        print_progress(f"{path}: taken in the place of {source.file}, whose checksum says nothing of it")
        return ""
    if expected is None or _recorded(source, folder) == _state(path, expected):
        return ""
    algorithm, value = expected
    inside = path.suffix == ".gz" and not source.file.endswith(".gz")
    if (digest := _digest(path, algorithm, inside)) != value:
        return _wrong(source, folder, expected, digest)
    _remember(path, source, folder, expected)
    return ""


def _wrong(source: Source, folder: Path, expected: Checksum, digest: str) -> str:
    origin = source.checksum_from or f"{_record(source, folder)}, written when it first came"
    return f"{expected[0]} {digest} instead of {expected[1]} (from {origin})"


def _record(source: Source, folder: Path) -> Path:
    path = folder / source.file
    return path.with_name(f".{path.name}.verified")


def _recorded(source: Source, folder: Path) -> dict[str, Any]:
    try:
        found = json.loads(_record(source, folder).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _remember(path: Path, source: Source, folder: Path, checksum: Checksum) -> None:
    record = _record(source, folder)
    record.parent.mkdir(parents=True, exist_ok=True)
    write_text(record, json.dumps(_state(path, checksum)))


def _state(path: Path, checksum: Checksum) -> dict[str, Any]:
    """What a record says of a file that has this checksum: as long as it is the same, the file has it, too."""
    known = path.stat()
    return {
        "path": str(path.resolve()),
        "bytes": known.st_size,
        "mtime_ns": known.st_mtime_ns,
        "checksum": list(checksum),
    }


def _expected(source: Source, folder: Path) -> Checksum | None:
    """The published checksum, or that of the first download."""
    if source.checksum:
        return source.checksum
    match _recorded(source, folder).get("checksum"):
        case [str(algorithm), str(value)]:
            return algorithm, value
    return None


def _digest(path: Path, algorithm: str, inside: bool) -> str:
    """Digest of a file, or of what gzip has compressed in it."""
    try:
        with gzip.open(path) if inside else open(path, "rb") as file:
            return hashlib.file_digest(file, algorithm).hexdigest()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path}: not a whole gzip file ({error})") from error


def _require_room(absent: Iterable[Source], folder: Path) -> None:
    """
    :raises UserError: what is still to come has no room in the folder
    """
    need = 0
    for source in absent:
        part = _part(source, folder)
        size = source.bytes or next((size for url in source.urls if (size := size_of(url))), 0)
        need += max(0, size - (part.stat().st_size if part.exists() else 0))
    free = shutil.disk_usage(folder).free
    if need and need + MARGIN > free:
        wanted = f"{need / 1e6:,.1f} MB are to be downloaded, and {MARGIN / 1e6:,.1f} MB more have to stay free"
        raise UserError(f"{folder}: {wanted}, but {free / 1e6:,.1f} MB are")


def _part(source: Source, folder: Path) -> Path:
    return folder / f"{source.file}.part"


def _fetch(source: Source, folder: Path) -> None:
    """Downloads a file from the first of its addresses that has the right one."""
    expected, failures = _expected(source, folder), []
    with Part(_part(source, folder), expected[0] if expected else "sha256") as part:
        begun = part.origin()[0]
        for url in sorted(source.urls, key=lambda url: url != begun):  # first the one that a part is from
            print_progress(f"{source.file}: {url}")
            try:
                digest = _transferred(url, part, source, expected)
            except TransferError as error:
                failures.append(f"{url}: {error}")
                continue
            if expected is None or digest == expected[1]:
                part.become(folder / source.file)
                _remember(folder / source.file, source, folder, (part.algorithm, digest))
                return
            failures.append(f"{url}: {_wrong(source, folder, expected, digest)}")
            part.restart()
        if not part.size:
            part.discard()
    raise UserError(f"{source.file}: not to be had: {'; '.join(failures)}; --raw takes a folder that has it")


def _transferred(url: str, part: Part, source: Source, expected: Checksum | None) -> str:
    """The digest of the whole file; one that was put together at different times and is wrong is fetched once more."""
    continued = part.size > 0
    transfer(url, part, source.bytes, expected is not None)
    if continued and expected and part.digest != expected[1]:
        part.restart()
        transfer(url, part, source.bytes, safe=True)
    return part.digest
