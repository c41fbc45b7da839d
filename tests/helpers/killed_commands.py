"""Commands that are killed in the middle, with all processes that they have started."""

import os
import signal
import time
from collections.abc import Callable, Sequence

from commands_for_tests import COMMANDS
from forked_commands import FORKS, carry_out


def carry_out_in_own_session(words: list[str]) -> None:
    """Run a command in a process group of its own."""
    os.setsid()
    carry_out(words, os.devnull)


def kill_command(words: Sequence[object], moment: Callable[[], bool]) -> None:
    """Start ``ode-transformer`` and kill it as soon as ``moment`` returns true; it must not have ended before."""
    command = [str(COMMANDS / "ode-transformer"), *map(str, words)]
    process = FORKS.Process(target=carry_out_in_own_session, args=(command,))
    process.start()
    while process.is_alive() and not moment():
        time.sleep(0.01)
    if process.is_alive():
        os.killpg(process.pid, signal.SIGKILL)
    process.join()
    assert process.exitcode == -signal.SIGKILL
