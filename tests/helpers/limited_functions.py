"""Functions that may take five seconds and one gigabyte more than this process has."""

import contextlib
import faulthandler
import io
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from ode_transformer.cli.command import error_message

SECONDS, MEMORY = 5, 2**30
PATIENCE = 300  # seconds until a function that waits, or never comes back to Python, ends this process


def answer(function: Callable[[], object]) -> str:
    """Return what a function prints to standard error, and its exception in one line.

    :raises AssertionError: it took more than the seconds; beyond the memory it gets none
    """
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), _limits():
        try:
            function()
        except Exception as error:
            errors.write(error_message(error))
    return errors.getvalue()


class OutOfTime(BaseException):
    """No handler of exceptions takes it for an answer."""


def _out_of_time(*_: object) -> None:
    raise OutOfTime


@contextlib.contextmanager
def _limits() -> Iterator[None]:
    status = Path("/proc/self/status").read_text().splitlines()
    used = 1024 * int(next(line for line in status if line.startswith("VmData")).split()[1])
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    handler = signal.signal(signal.SIGPROF, _out_of_time)
    faulthandler.dump_traceback_later(PATIENCE, exit=True, file=sys.__stderr__)
    resource.setrlimit(resource.RLIMIT_DATA, (used + MEMORY, hard))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    except OutOfTime:
        raise AssertionError(f"took more than {SECONDS} seconds") from None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGPROF, handler)
