"""Fuzz targets of ``corpora``: archives, texts of parallel corpora, gettext catalogues, and wheels."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path

from tiny_wheels import compile_mo, make_wheel

from ode_transformer.corpora.catalogue_files import read_wheel
from ode_transformer.corpora.pronunciation_corpus import parse_dictionary
from ode_transformer.corpora.raw_archives import open_texts
from ode_transformer.corpora.raw_text import PairLocation, read_pairs
from ode_transformer.support.lines import decode_stream

LINES = b"one line\nof two\n"
SEGMENTS = b'<doc>\n<hl><seg id="1">A &amp; B &#8211; C</seg></hl>\n<seg id="2">two\nlines</seg> <seg>x</seg>\n</doc>\n'
TAGGED = b"<url>x</url>\n<title>A title</title>\n<description>Text</description>\nA sentence.\n"
COLUMNS = b"id\t0.1\teins\tone\nid\t0.2\tzwei\ttwo\n"
TMX = b"""<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd" [<!ENTITY e "text">]>
<tmx version="1.4"><body>
<tu><tuv xml:lang="en"><seg>Good &amp; bad &e;</seg></tuv><tuv xml:lang="de"><seg>Gut<hi>e</hi></seg></tuv></tu>
</body></tmx>
"""
PO = rb"""
msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\n"

#, fuzzy
#| msgid "Old"
msgctxt "menu"
msgid "Save \"it\""
msgstr ""
"Sichern"

#. Default: "Your name, "
#. "please"
msgid "label_name"
msgstr "Ihr Name"

msgid "one file"
msgid_plural "many files"
msgstr[0] "eine Datei"
msgstr[1] "Dateien"

#~ msgid "Obsolete"
#~ msgstr "Alt"
"""
CMUDICT = b"read  R EH1 D # past\nread(2)  R IY1 D\nword  W ER1 D\n"


@cache
def scratch() -> Path:
    """Return a folder of this process for files that only a path can be parsed from."""
    folder = tempfile.TemporaryDirectory(prefix=f"fuzz-{os.getpid()}-")
    scratch.folder = folder  # type: ignore[attr-defined]  (removed when the process ends)
    return Path(folder.name)


def scratch_file(data: bytes, name: str = "input") -> Path:
    path = scratch() / name
    path.write_bytes(data)
    return path


def parse_archive(pattern: str | None, data: bytes) -> None:
    for name, stream in open_texts(scratch_file(data), pattern):
        for _ in decode_stream(stream, name):
            pass


def parse_pairs(location: PairLocation, data: bytes) -> None:
    for _ in read_pairs({"a": scratch_file(data)}, location):
        pass


def parse_wheel(data: bytes) -> None:
    read_wheel(scratch_file(data), "de")


def parse_catalogue(form: str, data: bytes) -> None:
    folder = scratch()
    files = {f"app/de/LC_MESSAGES/a.{form}": data, "app/en/LC_MESSAGES/a.mo": compile_mo({"label": "A label"})}
    read_wheel(make_wheel(folder, "fuzzed", files), "de")


def parse_pronunciations(data: bytes) -> None:
    parse_dictionary(data.decode().split("\n"))


def tarred(**members: bytes) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name + "ä" * 120)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return data.getvalue()


def zipped(method: int, **members: bytes) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return data.getvalue()


def wheels() -> list[bytes]:
    files = {
        "app/de/LC_MESSAGES/a.mo": compile_mo({"Good day": "Guten Tag", "a file\0files": "eine\0zwei"}),
        "app/de/LC_MESSAGES/b.po": PO.decode(),
    }
    with tempfile.TemporaryDirectory() as folder:
        return [make_wheel(Path(folder), "seed", files, "License: MIT\nClassifier: License :: MIT\n").read_bytes()]


def one_side(format_name: str) -> PairLocation:
    return PairLocation.model_validate({"source_file": "a", "target_file": "a", "format": format_name})


TAR = tarred(text=LINES, other=LINES)
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
TARGETS: dict[str, tuple[Sequence[bytes], Callable[[bytes], None]]] = {
    "zip": (
        [zipped(method, text=LINES, other=gzip.compress(LINES)) for method in METHODS],
        partial(parse_archive, "*"),
    ),
    "tar": (
        [TAR, gzip.compress(TAR), bz2.compress(TAR), lzma.compress(TAR), lzma.compress(TAR, lzma.FORMAT_ALONE)],
        partial(parse_archive, "*"),
    ),
    "gzip": ([gzip.compress(LINES), LINES], partial(parse_archive, None)),
    "segments": ([SEGMENTS], partial(parse_pairs, one_side("segments"))),
    "tagged lines": ([TAGGED], partial(parse_pairs, one_side("tagged"))),
    "columns": ([COLUMNS], partial(parse_pairs, PairLocation(file="a", format="tsv", columns=[4, 3]))),
    "TMX": ([TMX], partial(parse_pairs, PairLocation(file="a", format="tmx", languages=["en", "de"]))),
    "PO": ([PO], partial(parse_catalogue, "po")),
    "MO": (
        [compile_mo({"Good day": "Guten Tag", "menu\x04Save it": "Sichern", "a file\0files": "eine\0zwei"})],
        partial(parse_catalogue, "mo"),
    ),
    "wheel": (wheels(), parse_wheel),
    "pronunciations": ([CMUDICT], parse_pronunciations),
}
