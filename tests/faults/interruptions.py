"""Interrupts a piece of work at each change that it makes to the file system, and runs it again.

Python announces every opening, rename and removal of a file to audit hooks before it happens. A hook in a forked
process counts those that change something below one folder, and strikes at the chosen one. So each point at which work
can be interrupted is enumerated, and none is left to luck.
"""

from __future__ import annotations

import errno
import faulthandler
import mmap
import os
import resource
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Audit events that change the file system, with the number of their argument that holds the changed path.
CHANGES = {
    "os.rename": 1,
    "os.remove": 0,
    "os.rmdir": 0,
    "os.mkdir": 0,
    "os.link": 1,
    "os.symlink": 1,
    "os.truncate": 0,
}

LIMIT = 100  # seconds; a process that takes longer hangs

# Work to interrupt. Returns an exit status, as the command line does.
Work = Callable[[], int]


@dataclass(frozen=True)
class Fault:
    """What happens to a process.

    :param kind: ``kill``, ``terminate``, ``interrupt``: SIGKILL, SIGTERM, SIGINT for the whole process group;
        ``full disk``: from here on no file can be opened for writing; ``read-only``: nothing can be changed;
        ``torn``: killed within the write that makes a file longer than ``at`` bytes; ``too long``: that write fails;
        ``clock back``, ``clock ahead``: the time jumps by ten years, and nothing else happens
    :param at: number of the change, from 1; bytes for ``torn`` and ``too long``
    """

    kind: str
    at: int = 1


SIGNALS = {"kill": signal.SIGKILL, "terminate": signal.SIGTERM, "interrupt": signal.SIGINT}
ERRORS = {"full disk": errno.ENOSPC, "read-only": errno.EROFS}
SIZE_LIMITS = ("torn", "too long")
TEN_YEARS = 10 * 365 * 86_400.0  # seconds
CLOCKS = {"clock back": -TEN_YEARS, "clock ahead": TEN_YEARS}
KINDS = (*SIGNALS, *ERRORS, *SIZE_LIMITS, *CLOCKS)


@dataclass(frozen=True)
class Outcome:
    """How a process ended.

    :param status: exit status; minus the number of the signal that ended it
    :param output: standard output and standard error
    :param changes: the paths that it changed, in order, as far as they lie below the folder
    """

    status: int
    output: str
    changes: list[str]


def run_in_fork(work: Work, folder: Path, fault: Fault | None = None, meanwhile: Work | None = None) -> Outcome:
    """Run ``work`` in a forked process, and strike it by ``fault``.

    :param folder: only changes below it are counted
    :param meanwhile: called in this process while the other one works
    """
    counter = mmap.mmap(-1, 8)  # shared with the forks of the fork
    with tempfile.NamedTemporaryFile() as output, tempfile.NamedTemporaryFile("r", encoding="utf-8") as record:
        sys.stdout.flush()
        sys.stderr.flush()
        if (process := os.fork()) == 0:
            status = 99
            try:
                os.setsid()
                for stream in (1, 2):
                    os.dup2(output.fileno(), stream)
                faulthandler.dump_traceback_later(LIMIT, exit=True)
                signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
                sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
                watch_changes(folder, counter, os.open(record.name, os.O_WRONLY | os.O_APPEND), fault)
                status = work()
            except KeyboardInterrupt:
                status = 130
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else int(end.code is not None)
            except BaseException:
                sys.excepthook(*sys.exc_info())
                status = 98
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        if meanwhile is not None:
            meanwhile()
        _, wait_status = os.waitpid(process, 0)
        status = -os.WTERMSIG(wait_status) if os.WIFSIGNALED(wait_status) else os.WEXITSTATUS(wait_status)
        text = Path(output.name).read_text(encoding="utf-8", errors="replace")
        return Outcome(status, text, record.read().splitlines())


def watch_changes(folder: Path, counter: mmap.mmap, record: int, fault: Fault | None) -> None:
    """Install the hook that counts changes below ``folder`` and strikes; it stays for the life of the process."""
    start = f"{folder.resolve()}{os.sep}"
    if fault is not None and fault.kind in SIZE_LIMITS:
        # Beyond the limit the kernel sends SIGXFSZ; Python ignores it, so that the write fails with EFBIG.
        resource.setrlimit(resource.RLIMIT_FSIZE, (fault.at, resource.RLIM_INFINITY))
        if fault.kind == "torn":
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if not isinstance(flags, int) or not flags & WRITING or flags & os.O_DIRECTORY:
                return
        elif event in CHANGES:
            path = arguments[CHANGES[event]]
        else:
            return
        if not isinstance(path, str | bytes | os.PathLike):
            return
        name = os.path.abspath(os.fsdecode(path))
        if (
            not name.startswith(start) or f"{os.sep}tensorboard{os.sep}" in name
        ):  # a thread of its own writes the latter
            return
        (number,) = struct.unpack("q", counter[:8])
        counter[:8] = struct.pack("q", number + 1)
        os.write(record, f"{event.removeprefix('os.')} {name.removeprefix(start)}\n".encode())
        if fault is not None:
            strike(fault, number + 1, event, name)

    sys.addaudithook(hook)


def strike(fault: Fault, number: int, event: str, path: str) -> None:
    """Do what ``fault`` says before change ``number`` happens.

    :raises OSError: the disk is full, or the file system cannot be changed
    """
    if number == fault.at and fault.kind in SIGNALS:
        os.killpg(0, SIGNALS[fault.kind])
        time.sleep(0)  # Python runs the handler of SIGINT here
    if number == fault.at and fault.kind in CLOCKS:
        shift_clock(CLOCKS[fault.kind])
    if number >= fault.at and (
        fault.kind == "read-only" or (fault.kind == "full disk" and event in ("open", "os.mkdir"))
    ):
        code = ERRORS[fault.kind]
        raise OSError(code, os.strerror(code), path)


def shift_clock(seconds: float) -> None:
    """Let this process and its forks read a clock that is wrong by ``seconds``."""
    right_time, right_nanoseconds = time.time, time.time_ns
    time.time = lambda: right_time() + seconds
    time.time_ns = lambda: right_nanoseconds() + int(seconds * 1e9)
