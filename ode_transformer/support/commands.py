"""Run fairseq's commands as a user would type them."""

import ctypes
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from ctypes.util import find_library
from pathlib import Path
from subprocess import TimeoutExpired
from tempfile import TemporaryFile
from typing import Any, TextIO

from ode_transformer.support import console
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import PACKAGE

_PR_SET_PDEATHSIG = 1  # of Linux: prctl(2)
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
# To the allocators: keep freed memory. They would give large blocks, such as the logits of a batch, back to the kernel,
# which clears them for each next use. TCMalloc finds a freed block faster where the batches have many sizes.
GNU_C_LIBRARY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**40)}
LOG_INTERVAL = 0.2  # seconds between two looks at the log of a command
# --user-dir of fairseq's commands: this package, or the user's own, which imports this one
USER_DIR: ContextVar[Path] = ContextVar("user dir", default=PACKAGE)


def available_processors() -> int:
    """Return the number of processors that this process may use, on Linux fewer than the machine's under taskset."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def flags(options: Mapping[str, Any]) -> list[str]:
    """Convert ``{"lr": 0.1, "cpu": True}`` to ``["--lr", "0.1", "--cpu"]``; False and None leave an option out."""
    arguments: list[str] = []
    for name, value in options.items():
        if value is True:
            arguments.append(f"--{name}")
        elif value is not None and value is not False:
            arguments += [f"--{name}", str(value)]
    return arguments


def user_dir_flags() -> list[str]:
    """Return ``--user-dir`` of our own commands: none unless the user has a package of their own."""
    return [] if USER_DIR.get() == PACKAGE else ["--user-dir", str(USER_DIR.get())]


def with_user_dir(command: Sequence[str | Path]) -> Sequence[str | Path]:
    """Add the user's ``--user-dir`` to a command of ours that builds models."""
    builds_models = command[0] == "ode-transformer" and command[1] in ("analyse", "report")
    return [*command, *user_dir_flags()] if builds_models else command


def print_command(command: Sequence[str | Path], log: Path | None = None, append: bool = False) -> None:
    """Print a command for copying into a shell in which this Python environment is active.

    Compact output has the program's name alone, and the whole command is in its log.
    """
    command, arrow = with_user_dir(command), ">>" if append else ">"
    shown_command = shlex.join(map(str, command)) + (f" {arrow} {shlex.quote(str(log))} 2>&1" if log else "")
    command_log = console.COMMAND_LOG.get()
    if command_log is None:
        print(f"\n+ {shown_command}", flush=True)
        return
    command_log.parent.mkdir(parents=True, exist_ok=True)
    with open(command_log, "a", encoding="utf-8") as file:
        file.write(f"{shown_command}\n")
    program = shlex.join(map(str, command[: 2 if command[0] == "ode-transformer" else 1]))
    print(f"+ {program} …" + (f" {arrow} {log}" if log else ""), flush=True)


def run(
    command: Sequence[str | Path],
    log: Path,
    progress: Callable[[str], None] | None = None,
    append: bool = False,
    threads: int | None = None,
) -> None:
    """Print a command and run it with its output in ``log``; one with ``--cpu`` has the settings of ``keep_memory``.

    :param command: begins with a command of this Python environment
    :param progress: called with every line of the output
    :param append: append to the log instead of replacing it
    :param threads: of the command, unless the user sets ``OMP_NUM_THREADS``; None for as many as there are processors
    :raises UserError: the command failed; names the log and quotes its last line
    """
    print_command(command, log, append)
    folder = Path(sys.executable).parent
    arguments = [str(folder / str(command[0])), *map(str, with_user_dir(command)[1:])]
    # torchrun looks for fairseq-train in PATH; the log is UTF-8 whatever the locale.
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PATH")])])
    environment = os.environ | {"PYTHONUTF8": "1", "PATH": path}
    if "--cpu" in arguments:
        environment = keep_memory() | environment
    if (count := threads_to_set(threads)) is not None:
        environment["OMP_NUM_THREADS"] = str(count)
    # The command itself writes the log, so that no line is lost if this process is killed.
    with open(log, "ab" if append else "wb") as file, open(log, encoding="utf-8", errors="replace") as written:
        written.seek(0, os.SEEK_END)
        prepare = end_with_parent if os.name == "posix" else None
        with subprocess.Popen(
            arguments, stdout=file, stderr=subprocess.STDOUT, env=environment, preexec_fn=prepare
        ) as process:
            _follow(process, written, progress or (lambda line: None), Path(command[0]).name)
    if process.returncode != 0:
        raise UserError(f"{command[0]} failed, see {log}: {write_failure(log.parent) or last_line(log)}")


def last_line(log: Path) -> str:
    """Return the last line of a log that is not empty, as an error quotes it."""
    text = log.read_text(encoding="utf-8", errors="replace")
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    return lines[-1] if lines else "no output"


def write_failure(folder: Path) -> str:
    """Return why nothing can be written into a folder, such as a full disk, which cuts a log off; "" if it can."""
    try:
        with TemporaryFile(dir=folder) as file:
            file.write(bytes(2**20))
    except OSError as error:
        return f"{error.strerror}"
    return ""


def keep_memory() -> dict[str, str]:
    """Return the environment of a process that keeps the memory it frees, by TCMalloc where that is installed."""
    if "LD_PRELOAD" in os.environ or (library := find_library("tcmalloc_minimal")) is None:
        return GNU_C_LIBRARY
    return {"LD_PRELOAD": library, "TCMALLOC_RELEASE_RATE": "0"}


def threads_to_set(threads: int | None) -> int | None:
    """Return the threads that ``run`` gives a command; None if the command has as many as this process."""
    return None if "OMP_NUM_THREADS" in os.environ else threads


def end_with_parent() -> None:
    """Let Linux stop this process as soon as its parent has ended, which no handler of the parent could promise.

    A training that outlived the command would write into the folder of the next one, a search would only take time.
    """
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _follow(process: subprocess.Popen[bytes], log: TextIO, progress: Callable[[str], None], name: str) -> None:
    """Call ``progress`` with every line that a process adds to its log, until it ends.

    As long as nothing is printed by that, a line now and then says that the process works.
    """
    line_start, ended, printed, start = "", False, console.printed, time.monotonic()
    next_report = start + console.SILENCE
    while not ended:
        with suppress(TimeoutExpired):
            process.wait(LOG_INTERVAL)
        if console.printed == printed and (now := time.monotonic()) >= next_report:
            next_report = now + console.SILENCE
            console.print_progress(f"  {name} works: {now - start:.0f} seconds")
            printed = console.printed
        ended = process.returncode is not None  # before the log is read, which is complete then
        *lines, line_start = (line_start + log.read()).split("\n")
        for line in lines:
            progress(f"{line}\n")
    if line_start:
        progress(line_start)
