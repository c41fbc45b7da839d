"""Locks, symbolic links and lines; the rest of this module is tested by its callers."""

import gzip
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ode_transformer.support.errors import UserError
from ode_transformer.support.files import (
    atomic_directory,
    check_writable,
    lock_directory,
    temporary_path,
    write_text,
)
from ode_transformer.support.lines import read_lines

HOLD = """
import sys, time
from pathlib import Path
from ode_transformer.support.files import lock_directory
with lock_directory(Path(sys.argv[1]), "training"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_folder_is_locked_as_long_as_its_process_lives(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, tmp_path], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with (
            pytest.raises(UserError, match=f"^{tmp_path}: another process is preparing here$"),
            lock_directory(tmp_path, "preparing"),
        ):
            pytest.fail("two processes hold it")
        other.kill()
        other.wait()
    with lock_directory(tmp_path, "preparing"):
        pass


@pytest.mark.parametrize("exists", [True, False])
def test_writing_follows_a_symbolic_link(tmp_path: Path, exists: bool) -> None:
    target, link = tmp_path / "folder" / "target", tmp_path / "link"
    target.parent.mkdir()
    if exists:
        target.write_text("old")
    link.symlink_to(Path("folder") / "target")
    check_writable(link)
    write_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert list(target.parent.iterdir()) == [target]


APPEARANCES: dict[str, Callable[[Path], object]] = {
    "folder": lambda path: (path.mkdir(), (path / "mine").touch()),
    "empty folder": lambda path: path.mkdir(),
    "file": lambda path: path.touch(),
    "link": lambda path: path.symlink_to(path.with_name("elsewhere"), target_is_directory=True),
}


@pytest.mark.parametrize("replaces", [True, False])
@pytest.mark.parametrize("kind", APPEARANCES)
def test_what_appears_where_a_folder_is_to_be_stays(kind: str, replaces: bool, tmp_path: Path) -> None:
    target = tmp_path / "folder"
    (tmp_path / "elsewhere").mkdir()
    states = []

    def write() -> None:
        with atomic_directory(target, replaces) as folder:
            (folder / "ours").touch()
            APPEARANCES[kind](target)
            states.append(target.lstat())

    with pytest.raises(UserError, match=f"^{target}: has appeared or changed meanwhile and is not replaced"):
        write()
    assert states == [target.lstat()]
    assert {path.name for path in tmp_path.rglob("*")} <= {"folder", "elsewhere", "mine"}


def test_a_folder_is_replaced_unless_it_changes_meanwhile(tmp_path: Path) -> None:
    target = tmp_path / "folder"
    for name in ("first", "second"):
        with atomic_directory(target, replaces=True) as folder:
            (folder / name).write_text(name)
        assert [path.name for path in target.iterdir()] == [name]
    with pytest.raises(UserError, match="has appeared or changed"), atomic_directory(target, replaces=True):
        (target / "mine").touch()
    with pytest.raises(UserError, match="has appeared or changed"), atomic_directory(target):
        pass
    assert sorted(path.name for path in target.iterdir()) == ["mine", "second"]
    assert list(tmp_path.iterdir()) == [target]


def test_lines_end_at_line_feeds_alone(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes("\ufeffa\u2028b\r\nb\rc\n\nc\x0bd".encode())  # with the mark of UTF-8
    assert read_lines(path) == ["a\u2028b", "b\rc", "", "c\x0bd"]
    path.write_bytes(b"a\nb\xffc\n")
    with pytest.raises(UserError, match=r"text: line 2 is not UTF-8: byte 2 of it is 0xff$"):
        read_lines(path)
    path.write_bytes(gzip.compress(b"a\nb\n"))
    with pytest.raises(UserError, match=r"text: compressed by gzip; gunzip it"):
        read_lines(path)


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    others = subprocess.run(["sh", "-c", "echo $$"], capture_output=True, text=True, check=True).stdout.strip()
    leftover = temporary_path(path).with_name(f".file.{platform.node()}-{others}.tmp")
    leftover.touch()
    write_text(path, "new")
    assert list(tmp_path.iterdir()) == [path]
