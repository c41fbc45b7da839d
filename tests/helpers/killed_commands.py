"""Commands that are killed in the middle, with all processes that they have started."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from commands_for_tests import ENVIRONMENT


def start_command(words: Sequence[object]) -> subprocess.Popen[bytes]:
    """Start ``ode-transformer`` in a process group of its own."""
    command = [sys.executable, "-m", "ode_transformer.cli", *map(str, words)]
    environment = ENVIRONMENT | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, start_new_session=True)


def kill_command(words: Sequence[object], moment: Callable[[], bool]) -> None:
    """Start ``ode-transformer`` and kill it as soon as ``moment`` returns true; it must not have ended before."""
    process = start_command(words)
    while process.poll() is None and not moment():
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
