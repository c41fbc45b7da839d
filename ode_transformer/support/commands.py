"""Runs fairseq's commands as a user would type them, and shows them."""

from __future__ import annotations

import logging
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ode_transformer.support.errors import UserError

PACKAGE = Path(__file__).resolve().parents[1]  # what --user-dir is told


def divide_words(argv: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """The words of a command line before the first ``--``, and those after it, which are for fairseq-train.

    :param argv: this process's own when None
    """
    words = list(sys.argv[1:] if argv is None else argv)
    end = words.index("--") if "--" in words else len(words)
    return words[:end], words[end + 1 :]


def status_of(program: str, work: Callable[[], None]) -> int:
    """Does what a command line asks for; what goes wrong is said in one line. Returns the exit status."""
    logging.disable(logging.INFO)  # fairseq tells what it imports
    try:
        work()
    except (UserError, OSError) as error:
        message = str(error)
        if isinstance(error, OSError) and error.filename is not None and error.strerror is not None:
            message = f"{error.filename}: {error.strerror}"
        print(f"{program}: error: {' '.join(message.split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{program}: interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    return 0


def flags(options: Mapping[str, Any]) -> list[str]:
    """``{"lr": 0.1, "cpu": True}`` as ``["--lr", "0.1", "--cpu"]``; what is False or None is left out."""
    words: list[str] = []
    for name, value in options.items():
        if value is None or value is False:
            continue
        words.append(f"--{name}")
        if value is not True:
            words.append(str(value))
    return words


def show(command: Sequence[str | Path], log: Path | None = None, append: bool = False) -> None:
    """Prints a command so that it can be copied into a shell in which this Python environment is active."""
    target = f" {'>>' if append else '>'} {shlex.quote(str(log))} 2>&1" if log else ""
    print(f"\n+ {shlex.join(map(str, command))}{target}", flush=True)


def run(
    command: Sequence[str | Path],
    log: Path,
    progress: Callable[[str], None] | None = None,
    append: bool = False,
) -> None:
    """Shows a command and runs it, its output going to ``log``.

    :param command: the first word is a command of this Python environment
    :param progress: called with every line of the output as it comes
    :param append: keep what the log already holds
    :raises UserError: the command failed; names the log and quotes its last line
    """
    show(command, log, append)
    folder = Path(sys.executable).parent
    words = [str(folder / str(command[0])), *map(str, command[1:])]
    # torchrun looks for fairseq-train in PATH; the log is UTF-8 whatever the locale.
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PATH")])])
    with (
        open(log, "a" if append else "w", encoding="utf-8") as file,
        subprocess.Popen(
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            env=os.environ | {"PYTHONUTF8": "1", "PATH": path},
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            file.write(line)
            file.flush()
            if progress is not None:
                progress(line)
    if process.returncode != 0:
        lines = [line.strip() for line in log.read_text(encoding="utf-8").split("\n") if line.strip()]
        raise UserError(f"{command[0]} failed, see {log}: {lines[-1] if lines else 'no output'}")
