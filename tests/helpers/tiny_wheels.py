"""Small wheels with gettext catalogues."""

import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path

HEADER = "Content-Type: text/plain; charset=UTF-8\nPlural-Forms: nplurals=2; plural=(n != 1);\n"


def compile_mo(messages: Mapping[str, str], header: str = HEADER) -> bytes:
    """Return a compiled catalogue of identifiers and translations; NUL separates plural forms on both sides."""
    entries = sorted((key.encode(), text.encode()) for key, text in {"": header, **messages}.items())
    columns = [[entry[side] for entry in entries] for side in (0, 1)]
    position = 28 + 16 * len(entries)
    tables = b""
    for text in columns[0] + columns[1]:
        tables += struct.pack("<2I", len(text), position)
        position += len(text) + 1
    start = struct.pack("<7I", 0x950412DE, 0, len(entries), 28, 28 + 8 * len(entries), 0, 0)
    return start + tables + b"".join(text + b"\0" for text in columns[0] + columns[1])


def make_wheel(
    directory: Path, package: str, files: Mapping[str, bytes | str], metadata: str = "License-Expression: MIT\n"
) -> Path:
    """Write a wheel with ``files`` (content by path) and the metadata of version 1.0; return its path."""
    path = directory / f"{package}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{package}-1.0.dist-info/METADATA", f"Name: {package}\nVersion: 1.0\n{metadata}\nText.\n")
        for name, content in files.items():
            archive.writestr(name, content)
    return path
