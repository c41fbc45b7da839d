"""Small wheels with gettext catalogues."""

import zipfile
from collections.abc import Mapping
from pathlib import Path

import polib

HEADER = {"Content-Type": "text/plain; charset=UTF-8", "Plural-Forms": "nplurals=2; plural=(n != 1);"}


def compile_mo(messages: Mapping[str, str]) -> bytes:
    """Return a compiled catalogue of identifiers and translations."""
    catalogue = polib.POFile()
    catalogue.metadata = HEADER
    catalogue.extend(polib.POEntry(msgid=key, msgstr=text) for key, text in messages.items())
    return bytes(catalogue.to_binary())


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
