"""Programs in the process of the tests: each is its ``main``, with what a shell would give it.

So a command takes a tenth of a second instead of the seconds in which fairseq is imported, and a debugger can enter it.
What is about processes (kills, signals, torchrun) starts real ones by ``subprocess``, each of which costs seconds.
"""

import contextlib
import contextvars
import gc
import io
import logging
import multiprocessing
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO
from unittest.mock import patch

import numpy as np
import pytest
import torch

from ode_transformer.support import commands

MAIN = {entry.name: entry for entry in metadata.entry_points(group="console_scripts")}


def run_here(words: Sequence[object], stdin: str = "", merge: bool = False) -> subprocess.CompletedProcess[str]:
    """Run a program of this Python environment to its end; return its exit status and what it wrote.

    :param merge: write standard error to standard output
    """
    out, err = io.BytesIO(), io.BytesIO()
    status = carry_out(words, io.BytesIO(stdin.encode()), out, out if merge else err)
    written = (stream.getvalue().decode(errors="replace") for stream in (out, err))
    return subprocess.CompletedProcess(words, status, *written)


def carry_out(
    words: Sequence[object],
    stdin: BinaryIO,
    stdout: BinaryIO,
    stderr: BinaryIO,
    environment: Mapping[str, str] = os.environ,
) -> int:
    """Run a program in this folder; return its exit status."""
    words = list(map(str, words))
    streams: dict[str, Any] = {"stdin": io.TextIOWrapper(stdin, encoding="utf-8")}
    for name, stream, errors in (("stdout", stdout, "strict"), ("stderr", stderr, "backslashreplace")):
        streams[name] = io.TextIOWrapper(stream, encoding="utf-8", errors=errors, write_through=True)
    try:
        with (
            patch.multiple(sys, argv=words, path=sys.path[:], **streams),
            patch.dict(os.environ, environment),
            fresh_state(),
        ):
            return contextvars.copy_context().run(exit_status, Path(words[0]).name)
    finally:
        for stream in streams.values():
            stream.detach()  # else it would close what is under it


def exit_status(program: str) -> int:
    """Call the main function of a program and end as a process of its own does."""
    fairseq = program.startswith("fairseq-")
    if fairseq:
        log_as_fairseq()
    try:
        status = MAIN[program].load()()
    except SystemExit as end:
        status = end.code
    except Exception:
        from ode_transformer.models.fairseq_corrections.commands import print_error

        (print_error if fairseq else sys.__excepthook__)(*sys.exc_info())
        status = 1
    if isinstance(status, str):
        print(status, file=sys.stderr)
        status = 1
    return status or 0


def output_of(function: Callable[..., object], *arguments: object) -> str:
    """Return what a Python program that calls fairseq's functions writes to standard output."""
    with contextlib.redirect_stdout(io.StringIO()) as out, fresh_state():
        log_as_fairseq()
        function(*arguments)
    return out.getvalue()


def log_as_fairseq() -> None:
    """Log as fairseq's programs do: their modules say so when they are imported, which this process does once."""
    form = "%(asctime)s | %(levelname)s | %(name)s | %(message)s"
    logging.basicConfig(format=form, level="INFO", stream=sys.stdout)


@contextlib.contextmanager
def fresh_state() -> Iterator[None]:
    """Give a program the state of a new process, and take back what it changes."""
    loggers = [logging.root, *(log for log in logging.root.manager.loggerDict.values() if hasattr(log, "handlers"))]
    before = [(logger, logger.handlers[:], logger.level) for logger in loggers]
    disabled, threads = logging.root.manager.disable, torch.get_num_threads()
    processes = set(multiprocessing.active_children())
    generators = random.getstate(), np.random.get_state(), torch.get_rng_state()
    logging.disable(logging.NOTSET)
    logging.root.handlers = []
    logging.root.setLevel(logging.WARNING)
    torch.set_num_threads(1)  # sums are always formed in one order
    try:
        yield
    finally:
        end_fairseq()
        if set(multiprocessing.active_children()) - processes:
            gc.collect()  # an iterator ends the processes that load its batches
        torch.set_num_threads(threads)
        random.setstate(generators[0])
        np.random.set_state(generators[1])
        torch.set_rng_state(generators[2])
        logging.disable(disabled)
        for logger, handlers, level in before:
            logger.handlers = handlers
            logger.setLevel(level)


def end_fairseq() -> None:
    """Forget what fairseq keeps as long as a process lasts, and do what it does at its end."""
    if "fairseq" not in sys.modules:
        return
    from fairseq import checkpoint_utils, utils
    from fairseq.logging import metrics, progress_bar
    from fairseq_cli import train

    from ode_transformer.models.fairseq_corrections.batches import stop_loaders

    stop_loaders()
    metrics.reset()
    for function in (checkpoint_utils.save_checkpoint, train.should_stop_early):
        for name in ("best", "num_runs"):
            vars(function).pop(name, None)
    vars(utils.import_user_module).pop("memo", None)
    progress_bar._close_writers()
    progress_bar._tensorboard_writers.clear()


class ProgramHere:
    """``Popen`` as ``commands.run`` uses it: as soon as it is started, the program has run to its end."""

    def __init__(self, words: Sequence[str], stdout: BinaryIO, env: Mapping[str, str], **_: Any) -> None:
        self.returncode = carry_out(words, io.BytesIO(), stdout, stdout, env)
        stdout.flush()

    def __enter__(self) -> "ProgramHere":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def wait(self, timeout: float | None = None) -> int:
        return self.returncode


def start(words: Sequence[str], **options: Any) -> "ProgramHere | subprocess.Popen[bytes]":
    """Start a program: here, unless it starts processes itself or belongs to another package."""
    is_here = Path(words[0]).name.startswith(("fairseq-", "ode-transformer"))
    return (ProgramHere if is_here else subprocess.Popen)(words, **options)


def start_programs_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the package start fairseq's programs and its own in this process."""
    monkeypatch.setattr(commands, "subprocess", SimpleNamespace(Popen=start, STDOUT=subprocess.STDOUT))
