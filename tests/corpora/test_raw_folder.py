"""Raw files from a user's folder, to which nothing is written."""

import gzip
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from file_server import CONTENT, LICENSED, SHA256, FileServer, serving, source

from ode_transformer.corpora import download
from ode_transformer.corpora.download import obtain_files
from ode_transformer.support.errors import UserError

OTHER = CONTENT[::-1]


@pytest.fixture
def server() -> Iterator[FileServer]:
    """Server that must receive no request."""
    with serving() as file_server:
        yield file_server
        assert file_server.requests == []


def user_folder(tmp_path: Path, **files: bytes) -> Path:
    raw = tmp_path / "raw"
    raw.mkdir()
    for name, content in files.items():
        (raw / name.replace("_", ".")).write_bytes(content)
    return raw


def test_a_users_folder_is_read_and_left_alone(tmp_path: Path, server: FileServer, monkeypatch) -> None:
    raw = user_folder(tmp_path, a_tgz=CONTENT)
    raw.chmod(0o555)
    for _ in range(2):
        assert obtain_files(["a"], {"a": source(server)}, raw, tmp_path / "data") == {"a": raw / "a.tgz"}
        monkeypatch.setattr(download, "_file_digest", lambda *_, **__: pytest.fail("hashed again"))
    assert [path.name for path in raw.iterdir()] == ["a.tgz"]


def test_all_that_a_users_folder_lacks_is_said_at_once(tmp_path: Path, server: FileServer) -> None:
    sources = {"a": source(server), "n": LICENSED, "b": source(server, checksum=False, file="b")}
    raw = user_folder(tmp_path, b=b"")
    with pytest.raises(UserError) as error:
        obtain_files(["a", "b", "n"], sources, raw, tmp_path / "data")
    missing = f"a.tgz ({server.url('a.tgz')}), corpora/n.tar (ask at https://example.org for n.tar)"
    assert str(error.value) == f"--raw {raw}: missing there: {missing}"
    with pytest.raises(UserError, match="nowhere: no such folder"):
        obtain_files(["a"], sources, tmp_path / "nowhere", tmp_path / "data")


def test_a_users_file_that_is_not_right(tmp_path: Path, server: FileServer) -> None:
    raw = user_folder(tmp_path, a_tgz=OTHER)
    digest = hashlib.sha256(OTHER).hexdigest()
    with pytest.raises(UserError) as error:
        obtain_files(["a"], {"a": source(server)}, raw, tmp_path / "data")
    assert str(error.value) == f"{raw / 'a.tgz'}: sha256 {digest} instead of {SHA256} (from us)"
    assert (raw / "a.tgz").read_bytes() == OTHER


def test_the_other_form_of_a_file_is_accepted(tmp_path: Path, server: FileServer, capsys) -> None:
    """A text in place of its gzip file, which has no checksum; a gzip file in place of a text, whose checksum holds."""
    raw = user_folder(tmp_path, t_en=b"one\n", u_de_gz=gzip.compress(b"zwei\n"))
    compressed = source(server, file="t.en.gz", bytes=None)
    plain = source(server, file="u.de", sha256=hashlib.sha256(b"zwei\n").hexdigest(), bytes=None)
    paths = obtain_files(["t", "u"], {"t": compressed, "u": plain}, raw, tmp_path / "data")
    assert paths == {"t": raw / "t.en", "u": raw / "u.de.gz"}
    assert "t.en: used instead of t.en.gz" in capsys.readouterr().err
    for content, message in ((gzip.compress(b"drei\n"), "u.de.gz: sha256"), (b"drei\n", "not a whole gzip file")):
        (raw / "u.de.gz").write_bytes(content)
        with pytest.raises(UserError, match=message):
            obtain_files(["u"], {"u": plain}, raw, tmp_path / "data")


def test_a_users_own_file_is_used_where_it_is(tmp_path: Path) -> None:
    own = tmp_path / "mine.en"
    with pytest.raises(UserError, match=r"mine\.en: no such file \(the source a\)"):
        obtain_files(["a"], {"a": own}, None, tmp_path / "data")
    own.write_text("text")
    assert obtain_files(["a"], {"a": own}, None, tmp_path / "data") == {"a": own}
    with pytest.raises(UserError, match="--raw .*: nothing is read from there"):
        obtain_files(["a"], {"a": own}, tmp_path, tmp_path / "data")
    assert not (tmp_path / "data").exists()
