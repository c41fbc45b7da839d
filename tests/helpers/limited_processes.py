"""Functions run in forks of this process that may take five seconds and one gigabyte more than it has."""

import contextlib
import io
import multiprocessing
import resource
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from ode_transformer.cli.command import error_message

SECONDS, MEMORY = 5, 2**30
FORK = multiprocessing.get_context("fork")


def answer(function: Callable[[], object]) -> str:
    """Return what a function prints to standard error in a fork of this process, and its exception in one line.

    :raises AssertionError: it took more than the seconds or the memory
    """
    receiver, sender = FORK.Pipe(duplex=False)
    process = FORK.Process(target=_run, args=(function, sender))
    process.start()
    sender.close()
    try:
        text: str = receiver.recv()
    except EOFError:
        text = ""
    process.join()
    assert process.exitcode == 0, f"ended by signal {-(process.exitcode or 0)}: {text}"
    return text


def _run(function: Callable[[], object], sender: Connection) -> None:
    torch.set_num_threads(1)  # those of the process it is a fork of are not there
    signal.alarm(60)  # if it waits for something
    used = resource.getrusage(resource.RUSAGE_SELF)
    data = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmData"))
    resource.setrlimit(resource.RLIMIT_DATA, (1024 * int(data.split()[1]) + MEMORY,) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + SECONDS + 1,) * 2)
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        try:
            function()
        except Exception as error:
            errors.write(error_message(error))
    sender.send(errors.getvalue())
