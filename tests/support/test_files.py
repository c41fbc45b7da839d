"""Locks, symbolic links and input that is no regular file; the rest of this module is tested by its callers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ode_transformer.support.errors import UserError
from ode_transformer.support.files import (
    check_outputs_are_no_inputs,
    check_writable,
    lock_directory,
    open_input,
    write_text,
)
from ode_transformer.support.lines import MAX_LINE_BYTES, read_lines

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
    assert list(tmp_path.iterdir()) == []


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


def test_a_path_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "nowhere").symlink_to("absent/file")
    for name in (".", "pipe", "loop", "nowhere", "absent/file", "/dev/null"):
        with pytest.raises(UserError, match="not a file in an existing directory"):
            check_writable(tmp_path / name)


def test_only_regular_files_and_pipes_of_the_shell_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(UserError, match=f"^{path}: not a regular file$"):
            open_input(path)
    with pytest.raises(IsADirectoryError):
        open_input(tmp_path)
    command = f"{sys.executable} -c 'import sys; from ode_transformer.support.lines import read_lines as read; "
    command += "print(read(sys.argv[1]))' <(sleep 0.1; echo a; echo b)"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout == "['a', 'b']\n"


def test_lines_end_at_line_feeds_alone(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes("a\u2028b\r\nb\rc\n\nc\x0bd".encode())
    assert read_lines(path) == ["a\u2028b", "b\rc", "", "c\x0bd"]
    path.write_bytes(b"a\nb\xffc\n")
    with pytest.raises(UserError, match=r"text: line 2 is not UTF-8: byte 2 of it is 0xff$"):
        read_lines(path)


def test_the_mark_of_utf_8_is_no_part_of_a_text(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes("\ufeffa\n\ufeffb\n".encode())
    assert read_lines(path) == ["a", "\ufeffb"]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_refused_although_it_decodes_as_utf_8(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes("a dog\nb\n".encode(encoding))
    path.read_bytes().decode("utf-8")
    with pytest.raises(UserError, match="text: line 1 is full of zero bytes, as UTF-16 is; a text has to be UTF-8$"):
        read_lines(path)
    path.write_bytes(b"a\0dog\n")
    assert read_lines(path) == ["a\0dog"]


def test_an_output_replaces_no_input(tmp_path: Path) -> None:
    model, page = tmp_path / "model.pt", tmp_path / "page.html"
    link = tmp_path / "link"
    link.symlink_to(model)
    check_outputs_are_no_inputs([page], [model])
    with pytest.raises(UserError, match="link: an input of this command, which the output would replace"):
        check_outputs_are_no_inputs([link], [page, model])


def test_the_length_of_a_line_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"a\n" + b"x" * (MAX_LINE_BYTES - 1) + b"\n")
    assert len(read_lines(path)[1]) == MAX_LINE_BYTES - 1
    path.write_bytes(b"a\n" + b"x" * (MAX_LINE_BYTES + 1))
    with pytest.raises(UserError, match="text: line 2 is longer than 16,777,216 bytes"):
        read_lines(path)
