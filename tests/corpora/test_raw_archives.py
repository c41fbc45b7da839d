"""Archives that are hostile: each ends in one line that names the file, in bounded time and memory."""

import gzip
import io
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from ode_transformer.corpora import raw_archives
from ode_transformer.corpora.raw_archives import open_texts
from ode_transformer.support.errors import UserError
from ode_transformer.support.lines import MAX_LINE_BYTES, decode_stream

LINES = b"one line of text\n" * 400_000  # 6.8 MB
LIMIT = 1 << 20


def read(path: Path, pattern: str | None) -> list[str]:
    return [line for name, stream in open_texts(path, pattern) for line in decode_stream(stream, name)]


def zipped(content: bytes, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return a zip file with one member, ``text``."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", method) as archive:
        archive.writestr("text", content)
    return data.getvalue()


def with_header_field(archive: bytes, offset: int, value: int) -> bytes:
    """Return a zip file with another 16-bit value in both headers of its member, at an offset of the local one."""
    changed = bytearray(archive)
    struct.pack_into("<H", changed, offset, value)
    struct.pack_into("<H", changed, archive.index(b"PK\1\2") + offset + 2, value)
    return bytes(changed)


def with_shifted_directory(archive: bytes) -> bytes:
    """Return a zip file that states its directory 10 bytes too late, so that members start before the file."""
    changed = bytearray(archive)
    field = archive.index(b"PK\5\6") + 16
    struct.pack_into("<I", changed, field, struct.unpack_from("<I", archive, field)[0] + 10)
    return bytes(changed)


def tarred(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return data.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


BOMB, END = "decompresses to more than 1,048,576 bytes", "cannot be read to its end: "
HOSTILE: dict[str, tuple[Callable[[], bytes], str | None, str]] = {
    "encrypted": (lambda: with_header_field(zipped(b"a"), 6, 1), "text", f"{END}.*encrypted"),
    "unknown compression": (
        lambda: with_header_field(zipped(b"a"), 8, 97),
        "text",
        f"{END}.*compression method is not supported",
    ),
    "version of zip to come": (lambda: with_header_field(zipped(b"a"), 4, 99), "text", f"{END}zip file version 9.9"),
    "member before the file": (lambda: with_shifted_directory(zipped(b"a")), "text", f"{END}.*Invalid argument"),
    "zip bomb": (lambda: zipped(LINES), "text", BOMB),
    "gzip bomb": (lambda: gzip.compress(LINES), None, BOMB),
    "gzip bomb in a zip file": (lambda: zipped(gzip.compress(LINES)), "text", BOMB),
    "bomb before the text": (
        lambda: gzip.compress(tarred((member("other"), LINES), (member("text"), b"a"))),
        "text",
        BOMB,
    ),
    "name of 32 MB": (
        lambda: gzip.compress(tarred((member("x", tarfile.GNUTYPE_LONGNAME), bytes(1 << 25)))),
        "text",
        f"{END}it has a header of 33,554,432 bytes",
    ),
    **{
        name: (lambda kind=kind: tarred((member("text", kind, "/etc/passwd"), b"")), "text", "no text in it")
        for name, kind in {"link": tarfile.SYMTYPE, "hard link": tarfile.LNKTYPE, "device": tarfile.CHRTYPE}.items()
    },
    "neither zip nor tar": (lambda: b"<html>", "text", f"{END}file could not be opened"),
}


@pytest.mark.parametrize(("make", "pattern", "message"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_archives_end_in_one_line(tmp_path: Path, monkeypatch, make, pattern: str | None, message: str) -> None:
    monkeypatch.setattr(raw_archives, "MAX_UNCHECKED_BYTES", LIMIT)
    monkeypatch.setattr(raw_archives, "MAX_RATIO", 2)
    path = tmp_path / "archive"
    path.write_bytes(make())
    with pytest.raises(UserError, match=f"^{path}: {message}") as error:
        read(path, pattern)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["/etc/text", "../text", "C:\\text"])
def test_names_of_members_are_no_paths(tmp_path: Path, name: str) -> None:
    path = tmp_path / "archive.tar"
    path.write_bytes(tarred((member(name), b"in the archive")))
    assert read(path, "*text") == ["in the archive"]


def tar_header(kind: bytes, size: int) -> bytes:
    """A header whose size is written in base 256, as tar writes large ones."""
    header = bytearray(tarfile.TarInfo("a.txt").tobuf(tarfile.GNU_FORMAT))
    header[124:136] = (b"\xff" if size < 0 else b"\x80") + size.to_bytes(11, "big", signed=True)
    header[156:157] = kind
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


@pytest.mark.parametrize(("kind", "size"), [(tarfile.REGTYPE, -512), (tarfile.XHDTYPE, 1 << 20)])
def test_sizes_in_headers_do_not_hang(tmp_path: Path, kind: bytes, size: int) -> None:
    (tmp_path / "a.tar").write_bytes(tar_header(kind, size) + b"1" * (1 << 20) + b"\0" * 1024)
    with pytest.raises(UserError, match=f"a.tar: .*a header gives a size of {size:,} bytes"):
        list(open_texts(tmp_path / "a.tar", "*.txt"))


def test_a_line_without_end(tmp_path: Path) -> None:
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(b"short\n" + bytes(MAX_LINE_BYTES + 1)))
    with pytest.raises(UserError, match=f"text.gz: line 2 is longer than {MAX_LINE_BYTES:,} bytes"):
        read(path, None)


def test_text_of_a_usual_ratio_is_no_bomb(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(raw_archives, "MAX_UNCHECKED_BYTES", 1000)
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(b"".join(b"%d lines\n" % number for number in range(10_000))))
    assert len(read(path, None)) == 10_000
