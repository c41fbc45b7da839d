"""Raw files from a user's folder and from a local server, with the faults that servers have."""

import gzip
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from file_server import CONTENT, SHA256, FileServer, serving, source

from ode_transformer.lab.corpora import download
from ode_transformer.lab.corpora.download import Source, obtain_files, read_sources
from ode_transformer.lab.glue.tasks import TASKS
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import lock_directory

OTHER = CONTENT[::-1]
OTHER_SHA256 = hashlib.sha256(OTHER).hexdigest()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    monkeypatch.setattr(download, "RETRY_PAUSES", (0, 0))
    with serving() as file_server:
        file_server.files["a.tgz"] = CONTENT
        yield file_server


def fetch(remote: Source, folder: Path, raw: Path | None = None) -> Path:
    return obtain_files(["a"], {"a": remote}, raw, folder)["a"]


@pytest.mark.parametrize(
    ("cuts", "faults"), [([40_000, 30_000], {}), ([40_000], {"hangs": True}), ([40_000], {"ranges": False})]
)
def test_a_cut_connection_is_taken_up_where_it_was_cut(
    tmp_path: Path, server: FileServer, monkeypatch, cuts: list[int], faults: dict[str, bool]
) -> None:
    monkeypatch.setattr(download, "TIMEOUT", 0.2)
    server.cuts = list(cuts)
    vars(server).update(faults)
    assert fetch(source(server), tmp_path).read_bytes() == CONTENT
    assert [byte_range for _, byte_range in server.fetched] == ["", "bytes=40000-", "bytes=70000-"][: 1 + len(cuts)]


@pytest.mark.parametrize(
    ("checksum", "faults", "ranges"),
    [
        (True, {}, ["bytes=40000-"]),
        (True, {"packs": True}, ["bytes=40000-"]),
        (True, {"shift": 7}, ["bytes=40000-", ""]),
        (False, {}, [""]),
    ],
)
def test_a_later_run_goes_on_if_a_checksum_tells_that_the_parts_belong_together(
    tmp_path: Path, server: FileServer, checksum: bool, faults: dict[str, int], ranges: list[str]
) -> None:
    remote = source(server, checksum=checksum)
    server.cuts = [40_000, 0, 0]
    with pytest.raises(UserError, match=r"a.tgz: cannot be downloaded: http.*: peer closed connection .*; --raw"):
        fetch(remote, tmp_path)
    assert not (tmp_path / "a.tgz").exists()
    server.fetched.clear()
    vars(server).update(faults)
    assert fetch(remote, tmp_path).read_bytes() == CONTENT
    assert [byte_range for _, byte_range in server.fetched] == ranges


@pytest.mark.parametrize(
    ("tags", "ranges"),
    [
        (["a", "a"], ["", "bytes=40000-"]),
        (["a", "b", "b"], ["", "bytes=40000-", ""]),
        (["a", "b"], ["", "bytes=40000-", ""]),
        ([], ["", ""]),
    ],
)
def test_without_a_checksum_a_part_is_continued_by_the_same_version(
    tmp_path: Path, server: FileServer, tags: list[str], ranges: list[str]
) -> None:
    server.cuts, server.tags = [40_000], list(tags)
    assert fetch(source(server, checksum=False), tmp_path).read_bytes() == CONTENT
    assert [byte_range for _, byte_range in server.fetched] == ranges


@pytest.mark.parametrize("size", [40_000, len(CONTENT)])
def test_a_part_of_another_version_is_given_up(tmp_path: Path, server: FileServer, size: int) -> None:
    part = tmp_path / ".downloads" / "a.tgz" / "file.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(OTHER[:size])
    if size < len(CONTENT):  # else the server has no bytes behind it
        with pytest.raises(UserError, match=f"instead of {SHA256}; --raw"):
            fetch(source(server), tmp_path)
    assert fetch(source(server), tmp_path).read_bytes() == CONTENT


def test_a_compressed_body_that_does_not_say_so_and_a_short_one_are_refused(tmp_path: Path, server: FileServer) -> None:
    server.files["a.tgz"] = gzip.compress(CONTENT)
    with pytest.raises(UserError, match="instead of a file without gzip"):
        fetch(source(server, checksum=False, file="a.txt"), tmp_path)
    server.files["a.tgz"] = CONTENT[:6]
    with pytest.raises(UserError, match="instead of 7 bytes"):
        fetch(source(server, checksum=False, bytes=7), tmp_path)


def test_a_declared_size_limits_what_is_read(tmp_path: Path, server: FileServer) -> None:
    server.files["a.tgz"] = CONTENT * 100
    with pytest.raises(UserError, match="a.tgz: more than the 100,000 bytes of the file; --raw"):
        fetch(source(server), tmp_path)
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.part")) <= len(CONTENT)


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        ("absent.tgz", "Client error .404 .*"),
        ("wrong.tgz", f"100,000 bytes with sha256 {OTHER_SHA256} instead of {SHA256}"),
        ("page.tgz", "answers with a page"),
    ],
)
def test_the_next_address_after_one_that_fails(tmp_path: Path, server: FileServer, first: str, reason: str) -> None:
    server.files |= {"wrong.tgz": OTHER, "page.tgz": b"<html>"}
    server.types["page.tgz"] = "text/html; charset=utf-8"
    assert fetch(source(server, first, "a.tgz"), tmp_path / "two").read_bytes() == CONTENT
    with pytest.raises(UserError, match=f"a.tgz: cannot be downloaded: http.*{first}: {reason}; --raw takes"):
        fetch(source(server, first), tmp_path / "one")
    assert not (tmp_path / "one" / "a.tgz").exists()


@pytest.mark.parametrize("code", [200, 204])
def test_an_answer_without_a_byte_is_no_file(tmp_path: Path, server: FileServer, code: int) -> None:
    server.files["empty.tgz"], server.codes["empty.tgz"] = b"", code
    with pytest.raises(UserError, match=r"a.tgz: cannot be downloaded: http.*empty.tgz: answers without a byte; --raw"):
        fetch(source(server, "empty.tgz", checksum=False), tmp_path)
    assert not (tmp_path / "a.tgz").exists()
    assert fetch(source(server, "empty.tgz", "a.tgz", checksum=False), tmp_path).read_bytes() == CONTENT


def test_a_file_that_appears_during_a_download_stays(tmp_path: Path, server: FileServer, monkeypatch) -> None:
    mine = tmp_path / "a.tgz"
    digest = download.file_digest
    monkeypatch.setattr(download, "file_digest", lambda *a: (mine.write_bytes(OTHER), digest(*a))[1])
    with pytest.raises(UserError, match=f"^{mine}: has appeared or changed meanwhile and is not replaced"):
        fetch(source(server), tmp_path)
    assert mine.read_bytes() == OTHER


def test_a_file_that_is_there_is_never_replaced(tmp_path: Path, server: FileServer) -> None:
    mine = tmp_path / "a.tgz"
    mine.write_bytes(OTHER)
    with pytest.raises(UserError, match=f"a.tgz: sha256 {OTHER_SHA256} instead of {SHA256} .from us.; move it away"):
        fetch(source(server), tmp_path)
    mine.unlink()
    fetch(source(server), tmp_path)
    mine.write_bytes(OTHER)  # the download is the user's file from now on
    with pytest.raises(UserError, match="move it away"):
        fetch(source(server), tmp_path)
    assert mine.read_bytes() == OTHER


def test_without_a_published_checksum_the_first_download_is_the_measure(
    tmp_path: Path, server: FileServer, capsys: pytest.CaptureFixture[str]
) -> None:
    remote = source(server, checksum=False)
    fetch(remote, tmp_path).unlink()
    assert f"a.tgz: sha256 {SHA256}; none is published" in capsys.readouterr().err
    server.files["a.tgz"] = OTHER
    with pytest.raises(UserError, match=f"100,000 bytes with sha256 {OTHER_SHA256}"):
        fetch(remote, tmp_path)


def test_two_processes_do_not_write_one_file(tmp_path: Path, server: FileServer) -> None:
    with (
        lock_directory(tmp_path / ".downloads" / "a.tgz", "downloading"),
        pytest.raises(UserError, match="another process is downloading a.tgz here"),
    ):
        fetch(source(server), tmp_path)


def test_a_users_folder_is_read_and_left_alone(tmp_path: Path, server: FileServer, monkeypatch) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "a.tgz").write_bytes(OTHER)
    with pytest.raises(UserError, match=f"a.tgz: sha256 {OTHER_SHA256} instead of {SHA256} .from us."):
        fetch(source(server), tmp_path / "data", raw)
    (raw / "a.tgz").write_bytes(CONTENT)
    for _ in range(2):
        assert fetch(source(server), tmp_path / "data", raw) == raw / "a.tgz"
        monkeypatch.setattr(download, "file_digest", lambda *_: pytest.fail("hashed again"))
    assert [path.name for path in raw.iterdir()] == ["a.tgz"]
    assert server.fetched == []
    # A text in place of its gzip file, which has no checksum; a gzip file in place of a text, whose checksum holds.
    monkeypatch.undo()
    (raw / "t.en").write_bytes(b"one\n")
    (raw / "u.de.gz").write_bytes(gzip.compress(b"zwei\n"))
    plain = source(server, file="u.de", sha256=hashlib.sha256(b"zwei\n").hexdigest())
    assert fetch(source(server, file="t.en.gz"), tmp_path / "data", raw) == raw / "t.en"
    assert fetch(plain, tmp_path / "data", raw) == raw / "u.de.gz"


def test_files_addresses_checksums_and_copies_go_together() -> None:
    """Each file is on two hosts, or the list says why not."""
    sources = read_sources()
    assert len({source.file for source in sources.values()}) == len(sources)
    for name, entry in sources.items():
        urls = [url for other in (entry, *(sources[copy.source] for copy in entry.copies)) for url in other.urls]
        assert entry.obtain or entry.single_host or len({url.split("/")[2] for url in urls}) > 1, name
        assert bool(entry.checksum) == bool(entry.checksum_from), name
        assert bool(entry.urls) != bool(entry.obtain), name
    of_glue = {name for name in sources if name.startswith("glue_")}
    assert {name for task in TASKS.values() for name in task.sources} == of_glue
