"""Downloads from a local server, with the faults that servers have."""

import hashlib
import io
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from file_server import CONTENT, LICENSED, SHA256, FileServer, serving, source

from ode_transformer.corpora import download, transfer
from ode_transformer.corpora.download import obtain_files, remove_download
from ode_transformer.corpora.sources import Source
from ode_transformer.support.errors import UserError

OTHER = CONTENT[::-1]


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving() as file_server:
        file_server.files["a.tgz"] = CONTENT
        yield file_server


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "RETRY_PAUSES", (0, 0))


def fetch(remote: Source, folder: Path) -> Path:
    return obtain_files(["a"], {"a": remote}, None, folder)["a"]


def test_a_download_is_made_once_and_hashed_once(tmp_path: Path, server: FileServer, monkeypatch) -> None:
    remote = source(server)
    assert fetch(remote, tmp_path / "data").read_bytes() == CONTENT
    assert sorted(os.listdir(tmp_path / "data")) == [".a.tgz.verified", "a.tgz"]
    monkeypatch.setattr(download, "_file_digest", lambda *_, **__: pytest.fail("hashed again"))
    assert fetch(remote, tmp_path / "data").read_bytes() == CONTENT
    assert server.fetched == [("a.tgz", "")]


@pytest.mark.parametrize(
    ("cuts", "faults"),
    [
        ([40_000, 30_000], {}),
        ([40_000], {"lengths": False}),  # the published size tells that the answer was cut
        ([40_000], {"hangs": True}),
        ([40_000], {"ranges": False}),  # all is sent again
    ],
)
def test_a_cut_connection_is_taken_up_where_it_was_cut(
    tmp_path: Path, server: FileServer, monkeypatch, capsys, cuts: list[int], faults: dict[str, bool]
) -> None:
    monkeypatch.setattr(transfer, "READ_TIMEOUT", 0.2)
    server.cuts = list(cuts)
    vars(server).update(faults)
    assert fetch(source(server), tmp_path).read_bytes() == CONTENT
    ranges = ["", "bytes=40000-", "bytes=70000-"]
    assert server.fetched == [("a.tgz", byte_range) for byte_range in ranges[: 1 + len(cuts)]]
    assert ("timed out; again in" in capsys.readouterr().err) == ("hangs" in faults)


def stopped_download(remote: Source, folder: Path, server: FileServer) -> None:
    """Start a download that ends after 40,000 bytes."""
    server.cuts = [40_000, 0, 0, 0] if server.version or remote.checksum else [40_000, 40_000, 40_000]
    with pytest.raises(UserError, match="40,000 bytes came of 100,000"):
        fetch(remote, folder)
    assert (folder / "a.tgz.part").stat().st_size == 40_000
    assert not (folder / "a.tgz").exists()
    server.requests.clear()
    server.cuts.clear()


@pytest.mark.parametrize("checksum", [True, False])
def test_a_later_run_goes_on(tmp_path: Path, server: FileServer, checksum: bool) -> None:
    remote = source(server, checksum=checksum)
    stopped_download(remote, tmp_path, server)
    assert fetch(remote, tmp_path).read_bytes() == CONTENT
    assert server.fetched == [("a.tgz", "bytes=40000-")]


@pytest.mark.parametrize(
    ("versions", "checksum", "ranges"),
    [
        (('"1"', '"2"'), True, ["bytes=40000-"]),  # the answer to it is the whole file
        (('"1"', '"2"'), False, ["bytes=40000-"]),
        (("", ""), True, ["bytes=40000-", ""]),  # seen by the checksum
        (("", ""), False, [""]),  # no parts are joined
    ],
)
def test_a_file_that_changed_between_parts_is_fetched_anew(
    tmp_path: Path, server: FileServer, versions: tuple[str, str], checksum: bool, ranges: list[str]
) -> None:
    server.version = versions[0]
    remote = source(server, checksum=checksum, **({"sha256": hashlib.sha256(OTHER).hexdigest()} if checksum else {}))
    stopped_download(remote, tmp_path, server)
    server.files["a.tgz"], server.version = OTHER, versions[1]
    assert fetch(remote, tmp_path).read_bytes() == OTHER
    assert [byte_range for _, byte_range in server.fetched] == ranges


@pytest.mark.parametrize(
    ("size", "part", "ranges"),
    [(100_000, CONTENT, []), (None, CONTENT, ["bytes=100000-"]), (None, CONTENT + b"more", None)],
    ids=["whole", "whole, of unknown size", "too long"],
)
def test_a_part_that_is_whole_needs_no_more_bytes_and_a_longer_one_is_forgotten(
    tmp_path: Path, server: FileServer, size: int | None, part: bytes, ranges: list[str] | None
) -> None:
    remote = source(server, bytes=size)
    stopped_download(remote, tmp_path, server)
    (tmp_path / "a.tgz.part").write_bytes(part)
    assert fetch(remote, tmp_path).read_bytes() == CONTENT
    assert ranges is None or server.fetched == [("a.tgz", byte_range) for byte_range in ranges]


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        ("absent.tgz", "404 Not Found"),
        ("short.tgz", "has 5 bytes instead of 100,000"),
        ("wrong.tgz", f"sha256 {hashlib.sha256(OTHER).hexdigest()} instead of {SHA256} \\(from us\\)"),
    ],
)
def test_the_next_address_after_one_that_fails(tmp_path: Path, server: FileServer, first: str, reason: str) -> None:
    server.files |= {"short.tgz": b"short", "wrong.tgz": OTHER}
    assert fetch(source(server, first, "a.tgz"), tmp_path / "two").read_bytes() == CONTENT
    with pytest.raises(UserError, match=f"a.tgz: cannot be downloaded: http.*{first}: {reason}; --raw takes") as error:
        fetch(source(server, first), tmp_path / "one")
    assert "\n" not in str(error.value)
    assert not any(path.suffix == ".tgz" for path in (tmp_path / "one").iterdir())


def test_a_page_is_not_taken_for_a_file(tmp_path: Path, server: FileServer) -> None:
    """It has no published size or checksum that would tell."""
    server.files["moved"], server.types["moved"] = b"<html>", "text/html; charset=utf-8"
    assert fetch(source(server, "moved", "a.tgz", checksum=False), tmp_path).read_bytes() == CONTENT
    with pytest.raises(UserError, match="moved: answers with a page"):
        fetch(source(server, "moved", checksum=False, file="b"), tmp_path)


def test_an_empty_answer_is_no_file(tmp_path: Path, server: FileServer) -> None:
    server.files["a.tgz"], server.lengths = b"", False
    with pytest.raises(UserError, match="a.tgz: nothing came"):
        fetch(source(server, checksum=False), tmp_path)


def test_a_full_disk_ends_it_and_keeps_what_has_come(tmp_path: Path, server: FileServer) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with pytest.raises(UserError, match="a.tgz.part: could not be written .*; its bytes so far stay"):
            fetch(source(server), tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert fetch(source(server), tmp_path).read_bytes() == CONTENT


def test_a_part_is_continued_where_it_came_from(tmp_path: Path, server: FileServer) -> None:
    server.files["page"] = b"<html>"
    remote = source(server, "page", "a.tgz", bytes=None)
    server.cuts = [None, 40_000, 0, 0, 0]
    with pytest.raises(UserError, match="40,000 bytes came"):
        fetch(remote, tmp_path)
    server.requests.clear()
    server.cuts.clear()
    assert fetch(remote, tmp_path).read_bytes() == CONTENT
    assert server.fetched == [("a.tgz", "bytes=40000-")]


def test_nobody_answers(tmp_path: Path) -> None:
    remote = Source(file="a", urls=["http://127.0.0.1:9/a"], licence="free")
    with pytest.raises(UserError, match="a: cannot be downloaded: .*refused"):
        fetch(remote, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("is_known", "content", "reason"), [(True, OTHER, "; "), (False, b"", "a.tgz: empty; ")])
def test_a_broken_download_is_fetched_anew(
    tmp_path: Path, server: FileServer, capsys, is_known: bool, content: bytes, reason: str
) -> None:
    """Whether an earlier run has checked another file there, or it is empty and nothing is known of it."""
    remote = source(server, checksum=is_known)
    if is_known:
        fetch(remote, tmp_path)
    (tmp_path / "a.tgz").write_bytes(content)
    assert fetch(remote, tmp_path).read_bytes() == CONTENT
    assert f"{reason}it is downloaded again" in capsys.readouterr().err


def test_without_a_published_checksum_the_first_download_is_the_measure(tmp_path: Path, server: FileServer) -> None:
    remote = source(server, checksum=False)
    fetch(remote, tmp_path).unlink()
    server.files["a.tgz"] = OTHER
    with pytest.raises(UserError, match=f"instead of {SHA256} .from .*a.tgz.verified, written at the first download"):
        fetch(remote, tmp_path)
    remove_download(remote, tmp_path)
    assert fetch(remote, tmp_path).read_bytes() == OTHER
    (tmp_path / ".a.tgz.verified").unlink()  # as if it had been stopped before it wrote the record
    server.requests.clear()
    assert fetch(remote, tmp_path).read_bytes() == OTHER
    assert (tmp_path / ".a.tgz.verified").exists()
    assert server.requests == []


def test_another_address_is_another_file(tmp_path: Path, server: FileServer, capsys) -> None:
    """Without a published checksum: with one, it says whether the file is the same."""
    server.files["b.tgz"] = OTHER
    first = source(server, checksum=False)
    second = first.model_copy(update={"urls": [url.replace("a.tgz", "b.tgz") for url in first.urls]})
    for remote, content in ((first, CONTENT), (second, OTHER), (second, OTHER), (first, CONTENT)):
        assert fetch(remote, tmp_path).read_bytes() == content
    assert capsys.readouterr().err.count("a.tgz: downloaded from another address before; it is downloaded again") == 2


def test_room_is_looked_at_before_the_first_byte(tmp_path: Path, server: FileServer, monkeypatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=transfer.MIN_FREE_BYTES + 70_000))
    server.files["b"] = bytes(20_000)
    sources = {"a": source(server), "b": source(server, "b", checksum=False, file="b")}
    with pytest.raises(
        UserError, match="0.1 MB are to be downloaded, and 268.4 MB more have to stay free, but 268.5 MB are"
    ):
        obtain_files(["a", "b"], sources, None, tmp_path)
    assert server.fetched == []  # the size that nobody has published was asked for by HEAD
    (tmp_path / "a.tgz.part").write_bytes(CONTENT[:50_000])
    assert obtain_files(["a", "b"], sources, None, tmp_path)["a"].read_bytes() == CONTENT


def test_two_processes_do_not_write_one_file(tmp_path: Path, server: FileServer) -> None:
    with (
        transfer.PartialFile(tmp_path / "a.tgz.part", "sha256"),
        pytest.raises(UserError, match="a.tgz.part: another process is downloading it"),
    ):
        fetch(source(server), tmp_path)


def test_what_cannot_be_fetched_is_said_before_anything_is_fetched(tmp_path: Path, server: FileServer) -> None:
    sources = {"a": source(server), "n": LICENSED}
    with pytest.raises(UserError, match="x: no such source; for a file of your own"):
        obtain_files(["a", "x"], sources, None, tmp_path)
    with pytest.raises(UserError, match="corpora/n.tar: missing: ask at https://example.org for n.tar"):
        obtain_files(["a", "n"], sources, None, tmp_path)
    assert server.requests == []
    (tmp_path / "corpora").mkdir()
    (tmp_path / "corpora" / "n.tar").write_text("theirs")
    assert obtain_files(["a", "n"], sources, None, tmp_path)["n"].read_text() == "theirs"


OK = b"HTTP/1.1 200 OK\r\n"
LENGTH, RANGE = OK + b"Content-Length: ", b"HTTP/1.1 206 OK\r\nContent-Range: bytes 0-9/"
SLOW = "fewer than 100,000 bytes came in 0.3 s"
REDIRECT = b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: "
HOSTILE = {  # answer, what follows it for ever, error
    "no range after nothing": (b"HTTP/1.1 416 Beyond\r\nContent-Range: bytes */0\r\n\r\n", b"", "416 Beyond"),
    "redirect to half an address": (REDIRECT + b"http://[::1\r\n\r\n", b"", "Invalid IPv6 URL"),
    "redirect to a port without number": (REDIRECT + b"http://localhost:x/\r\n\r\n", b"", "nonnumeric port: 'x'"),
    "redirect to itself": (REDIRECT + b"/a.tgz\r\n\r\n", b"", "302 .*infinite loop"),
    "redirect to a file": (REDIRECT + b"file:///etc/passwd\r\n\r\n", b"", "302 .*file:///etc/passwd' is not allowed"),
    "length of 5,000 digits": (LENGTH + b"9" * 5000 + b"\r\n\r\nabc", b"", "an impossible length, 9{40}$"),
    "negative length": (LENGTH + b"-1\r\n\r\nabc", b"", "an impossible length, -1"),
    "range of 5,000 digits": (RANGE + b"9" * 5000 + b"\r\n\r\n", b"", "another range than the requested one"),
    "another protocol": (b"SSH-2.0-OpenSSH_9.6\r\n", b"", "SSH-2.0-OpenSSH_9.6"),
    "endless headers": (OK, b"X: y\r\n", SLOW),
    "endless beginnings": (b"", b"HTTP/1.1 100 Continue\r\n\r\n", SLOW),
    "endless slow content": (LENGTH + b"1000000\r\n\r\n", b"x", SLOW),
    "endless end": (OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n", b"X: y\r\n", SLOW),
}


@pytest.mark.parametrize(("answer", "drip", "reason"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_answers_end_in_one_line(
    tmp_path: Path, server: FileServer, monkeypatch, answer: bytes, drip: bytes, reason: str
) -> None:
    monkeypatch.setattr(transfer, "PROGRESS_WINDOW", 0.3)
    monkeypatch.setattr(transfer, "RETRY_PAUSES", (0,))
    server.raw_answers["a.tgz"], server.drip = answer, drip
    with pytest.raises(UserError) as error:
        fetch(source(server, checksum=False), tmp_path)
    message = str(error.value).removesuffix("; --raw takes a folder that has it")
    assert re.match(f"a.tgz: cannot be downloaded: {re.escape(server.url('a.tgz'))}: .*{reason}", message), message
    assert "\n" not in message
    assert not (tmp_path / "a.tgz").exists()
    assert not (tmp_path / ".a.tgz.verified").exists()


def test_an_absurd_length_is_said_before_the_download(tmp_path: Path, server: FileServer) -> None:
    server.raw_answers["a.tgz"] = LENGTH + b"99999999999999999\r\n\r\n"
    message = "100,000,000,000.0 MB are to be downloaded, and 268.4 MB more have to stay free"
    with pytest.raises(UserError, match=message):
        fetch(source(server, checksum=False), tmp_path)


def test_a_download_of_unknown_length_leaves_room_on_the_disk(tmp_path: Path, server: FileServer, monkeypatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=transfer.MIN_FREE_BYTES - 1))
    server.lengths = False
    with pytest.raises(UserError, match="268.4 MB have to stay free, but 268.4 MB are"):
        fetch(source(server, checksum=False), tmp_path)


SCRIPT = """
import sys
from pathlib import Path
from ode_transformer.corpora.download import obtain_files
from ode_transformer.corpora.sources import read_sources
obtain_files(["a"], read_sources(Path(sys.argv[1])), None, Path(sys.argv[2]))
"""


def test_a_killed_download_goes_on(tmp_path: Path, server: FileServer) -> None:
    server.cuts, server.hangs = [40_000], True
    catalogue = tmp_path / "sources.yaml"
    catalogue.write_text(
        f"a: {{file: a.tgz, urls: ['{server.url('a.tgz')}'], licence: free, sha256: {SHA256}, checksum_from: us}}\n"
    )
    data = tmp_path / "data"
    command = [sys.executable, "-c", SCRIPT, str(catalogue), str(data)]
    process = subprocess.Popen(command)
    partial_path = data / "a.tgz.part"
    while process.poll() is None and not (partial_path.exists() and partial_path.stat().st_size == 40_000):
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert os.listdir(data).count("a.tgz") == 0
    subprocess.run(command, check=True)
    assert (data / "a.tgz").read_bytes() == CONTENT
    assert server.fetched == [("a.tgz", ""), ("a.tgz", "bytes=40000-")]


def tar_source(server: FileServer, member: bytes) -> Source:
    """Serve a tar file with this content as d/a.tgz."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        entry = tarfile.TarInfo("d/a.tgz")
        entry.size = len(member)
        archive.addfile(entry, io.BytesIO(member))
    server.files["b.tar.gz"] = data.getvalue()
    return Source(file="b.tar.gz", urls=[server.url("b.tar.gz")], licence="free")


@pytest.mark.parametrize("member", [CONTENT, OTHER])
def test_a_copy_in_an_archive_is_taken_last_and_verified(tmp_path: Path, server: FileServer, member: bytes) -> None:
    copy = {"source": "b", "member": "d/a.tgz"}
    sources = {"a": source(server, "missing", copies=[copy]), "b": tar_source(server, member)}
    if member == CONTENT:
        assert obtain_files(["a"], sources, None, tmp_path)["a"].read_bytes() == CONTENT
        assert obtain_files(["a"], sources, None, tmp_path)["a"].read_bytes() == CONTENT
    else:
        with pytest.raises(UserError, match=r"404 .*; d/a\.tgz: sha256 .* instead of"):
            obtain_files(["a"], sources, None, tmp_path)
        assert not (tmp_path / "a.tgz").exists()
    assert [name for name, _ in server.fetched] == ["missing", "b.tar.gz"]
