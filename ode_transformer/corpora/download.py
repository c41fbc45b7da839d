"""Complete and verified raw files, from a user's folder or downloaded."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ode_transformer.corpora.raw_archives import open_texts
from ode_transformer.corpora.sources import AnySource, Copy, Source, select_sources
from ode_transformer.corpora.transfer import (
    READ_BYTES,
    PartialFile,
    TransferError,
    check_free_space,
    remote_size,
    transfer,
)
from ode_transformer.support.console import print_progress
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import file_stamp, write_text

Checksum = tuple[str, str]  # algorithm and value


def obtain_files(
    names: Iterable[str], sources: Mapping[str, AnySource], raw: Path | None, folder: Path
) -> dict[str, Path]:
    """Return the paths of the files of some sources, downloaded if necessary.

    A record of each verified file is kept, so that it is hashed again only after it has changed. A user's own files are
    used where they are.

    :param names: of the sources
    :param raw: folder of the user, in which every file must be and to which nothing is written; None: download
    :param folder: for downloads and records
    :returns: paths by the sources' names
    :raises UserError: a file is missing, has a wrong checksum or cannot be downloaded; the disk is too full
    """
    all_selected = select_sources(names, sources)
    own_files = {name: source for name, source in all_selected.items() if isinstance(source, Path)}
    if missing := [
        f"{path}: {'not a file' if path.exists() else 'no such file'} (the source {name})"
        for name, path in own_files.items()
        if not path.is_file()
    ]:
        raise UserError("; ".join(missing))
    selected = {name: source for name, source in all_selected.items() if isinstance(source, Source)}
    if raw is not None and not selected:
        raise UserError(f"--raw {raw}: nothing is read from there, because the recipe names files of its own")
    published = {name: source for name, source in sources.items() if isinstance(source, Source)}
    published_files = _obtain_published(selected, published, raw, folder) if selected else {}
    return {name: path for files in (own_files, published_files) for name, path in files.items()}


def _obtain_published(
    selected: Mapping[str, Source], sources: Mapping[str, Source], raw: Path | None, folder: Path
) -> dict[str, Path]:
    """Return the paths of published files; see ``obtain_files``.

    :param sources: all published ones, for the archives
    """
    if raw is not None:
        return _check_user_files(selected, raw, folder)
    paths = {name: folder / source.file for name, source in selected.items()}
    on_request = {paths[name]: source.obtain for name, source in selected.items() if source.obtain}
    if missing := [f"{path}: missing: {how}" for path, how in on_request.items() if not path.is_file()]:
        raise UserError("; ".join(missing))
    absent = [source for source in selected.values() if not source.obtain and not _is_downloaded(source, folder)]
    for source in absent:
        (folder / source.file).parent.mkdir(parents=True, exist_ok=True)
    _check_downloads_fit(absent, folder)
    for source in absent:
        _download(source, folder, sources)
    return paths


def file_identity(path: Path, source: AnySource, folder: Path) -> list[object]:
    """Return values that change when a file does: its checksum if verified, else its size and modification time."""
    if isinstance(source, Source):
        checksum = _read_record(source, folder).get("checksum")
        if checksum and _is_recorded(path, source, folder, tuple(checksum)):
            return list(checksum)
    return file_stamp(path)


def remove_download(source: Source, folder: Path) -> None:
    """Delete a download and its record, so that it is downloaded again."""
    (folder / source.file).unlink(missing_ok=True)
    _record_path(source, folder).unlink(missing_ok=True)


def find_in_folder(raw: Path, source: AnySource) -> Path | None:
    """Return the path of a source in a user's folder, with or without compression by gzip; None if it is missing."""
    if isinstance(source, Path):
        return source if source.is_file() else None
    file = source.file
    alternative = file.removesuffix(".gz") if file.endswith(".gz") else f"{file}.gz"
    return next((raw / name for name in (file, alternative) if (raw / name).is_file()), None)


def _check_user_files(sources: Mapping[str, Source], raw: Path, folder: Path) -> dict[str, Path]:
    """Return the path of each source in a user's folder.

    :raises UserError: the folder or a file is missing, or a file has a wrong checksum
    """
    if not raw.is_dir():
        raise UserError(f"--raw {raw}: no such folder")
    paths = {name: find_in_folder(raw, source) for name, source in sources.items()}
    if absent := [sources[name] for name, path in paths.items() if path is None]:
        described = ", ".join(f"{source.file} ({source.obtain or source.urls[0]})" for source in absent)
        raise UserError(f"--raw {raw}: missing there: {described}")
    present = {name: path for name, path in paths.items() if path is not None}
    for name, path in present.items():
        if mistake := _checksum_mistake(path, sources[name], folder, sources[name].checksum):
            raise UserError(f"{path}: {mistake}")
    return present


def _is_downloaded(source: Source, folder: Path) -> bool:
    """Return whether a source has been downloaded; a broken download is deleted."""
    path, expected = folder / source.file, _expected_checksum(source, folder)
    if not path.is_file():
        return False
    if _is_of_another_source(source, folder):
        print_progress(f"{path}: downloaded from another address before; it is downloaded again")
        remove_download(source, folder)
        return False
    if path.stat().st_size == 0:
        mistake = "empty"
    elif expected is None:  # the process died before it wrote the record
        _write_record(path, source, folder, ("sha256", _file_digest(path, "sha256")))
        return True
    else:
        mistake = _checksum_mistake(path, source, folder, expected)
    if mistake:
        print_progress(f"{path}: {mistake}; it is downloaded again")
        if mistake == "empty":
            remove_download(source, folder)
        else:
            path.unlink()
    return not mistake


def _is_of_another_source(source: Source, folder: Path) -> bool:
    """Return whether a download is recorded from other addresses, and no published checksum says that it is the same.

    Two recipes may give their own sources the same file, and an address may be corrected.
    """
    urls = _read_record(source, folder).get("urls")
    return source.checksum is None and isinstance(urls, list) and not set(map(str, urls)) & set(source.urls)


def _checksum_mistake(path: Path, source: Source, folder: Path, expected: Checksum | None) -> str:
    """Compare a file with its checksum; if they match, write the record.

    :returns: the difference, for an error message; empty if there is none, or no checksum
    """
    if path.suffix != ".gz" and source.file.endswith(".gz"):
        print_progress(f"{path}: used instead of {source.file}, whose checksum says nothing about it")
        return ""
    if expected is None or _is_recorded(path, source, folder, expected):
        return ""
    algorithm, value = expected
    is_compressed_copy = path.suffix == ".gz" and not source.file.endswith(".gz")
    digest = _gzip_content_digest(path, algorithm) if is_compressed_copy else _file_digest(path, algorithm)
    if digest != value:
        return _difference(source, folder, expected, digest)
    _write_record(path, source, folder, expected)
    return ""


def _difference(source: Source, folder: Path, expected: Checksum, digest: str) -> str:
    origin = source.checksum_from or f"{_record_path(source, folder)}, written at the first download"
    return f"{expected[0]} {digest} instead of {expected[1]} (from {origin})"


def _record_path(source: Source, folder: Path) -> Path:
    path = folder / source.file
    return path.with_name(f".{path.name}.verified")


def _read_record(source: Source, folder: Path) -> dict[str, Any]:
    try:
        record = json.loads(_record_path(source, folder).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _write_record(path: Path, source: Source, folder: Path, checksum: Checksum) -> None:
    record_path = _record_path(source, folder)
    record_path.parent.mkdir(parents=True, exist_ok=True)
    write_text(record_path, json.dumps({**_record_of(path, checksum), "urls": source.urls}))


def _is_recorded(path: Path, source: Source, folder: Path, checksum: Checksum) -> bool:
    """Return whether a file was verified with this checksum, and has not been touched since."""
    record = _read_record(source, folder)
    return all(record.get(key) == value for key, value in _record_of(path, checksum).items())


def _record_of(path: Path, checksum: Checksum) -> dict[str, Any]:
    """Return the record of a file with this checksum; it stays the same as long as the file is not touched."""
    status = path.stat()
    return {
        "path": str(path.resolve()),
        "bytes": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "checksum": list(checksum),
    }


def _expected_checksum(source: Source, folder: Path) -> Checksum | None:
    """Return the published checksum, or that of the first download."""
    if source.checksum:
        return source.checksum
    match _read_record(source, folder).get("checksum"):
        case [str(algorithm), str(value)]:
            return algorithm, value
    return None


def _file_digest(path: Path, algorithm: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def _gzip_content_digest(path: Path, algorithm: str) -> str:
    try:
        with gzip.open(path) as file:
            return hashlib.file_digest(file, algorithm).hexdigest()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path}: not a whole gzip file ({error})") from error


def _check_downloads_fit(absent: Iterable[Source], folder: Path) -> None:
    """Check that the missing bytes of all downloads fit on the disk.

    :raises UserError: they do not
    """
    needed = 0
    for source in absent:
        partial = _partial_path(source, folder)
        size = source.bytes or next((size for url in source.urls if (size := remote_size(url))), 0)
        needed += max(0, size - (partial.stat().st_size if partial.exists() else 0))
    if needed:
        check_free_space(folder, needed)


def _partial_path(source: Source, folder: Path) -> Path:
    return folder / f"{source.file}.part"


def _download(source: Source, folder: Path, sources: Mapping[str, Source]) -> None:
    """Download a file from the first of its addresses, or of the archives with a copy, that gives the right checksum.

    :param sources: by name, for the archives
    :raises UserError: none does; the reason for each address is in the message
    """
    expected, failures = _expected_checksum(source, folder), []
    with PartialFile(_partial_path(source, folder), expected[0] if expected else "sha256") as partial:

        def is_accepted(name: str, digest: str) -> bool:
            """Keep the file if its checksum is right; otherwise note the failure and start anew."""
            if expected is None or digest == expected[1]:
                partial.move_to(folder / source.file)
                _write_record(folder / source.file, source, folder, (partial.algorithm, digest))
                return True
            failures.append(f"{name}: {_difference(source, folder, expected, digest)}")
            partial.restart()
            return False

        partial_url = partial.origin()[0]
        for url in sorted(source.urls, key=lambda url: url != partial_url):  # resume before starting anew elsewhere
            print_progress(f"{source.file}: {url}")
            try:
                digest = _transfer_verified(url, partial, source, expected)
            except TransferError as error:
                failures.append(f"{url}: {error}")
                continue
            if is_accepted(url, digest):
                return
        for copy in source.copies:
            try:
                _copy_member(copy, partial, folder, sources)
            except UserError as error:
                failures.append(str(error))
                continue
            if is_accepted(copy.member, partial.digest):
                return
        if not partial.size:
            partial.remove()
    reasons = "; ".join(failures)
    raise UserError(f"{source.file}: cannot be downloaded: {reasons}; --raw takes a folder that has it")


def _copy_member(copy: Copy, partial: PartialFile, folder: Path, sources: Mapping[str, Source]) -> None:
    """Write a member of an archive, which is downloaded if necessary, into a partial file.

    :raises UserError: the archive cannot be downloaded, or has no such member
    """
    archive = sources[copy.source]
    if not _is_downloaded(archive, folder):
        (folder / archive.file).parent.mkdir(parents=True, exist_ok=True)
        _download(archive, folder, sources)
    partial.restart()
    for _, stream in open_texts(folder / archive.file, copy.member):
        while block := stream.read(READ_BYTES):
            partial.append(block)


def _transfer_verified(url: str, partial: PartialFile, source: Source, expected: Checksum | None) -> str:
    """Download the rest of a file; if its parts do not belong together, download it once more from the start.

    :returns: digest of the whole file
    """
    resumed = partial.size > 0
    transfer(url, partial, source.bytes, expected is not None)
    if resumed and expected and partial.digest != expected[1]:
        partial.restart()
        transfer(url, partial, source.bytes, has_checksum=True)
    return partial.digest
