"""Processes that share a search, on their own; test_translate.py has what they translate."""

import signal
import subprocess
import sys

from killed_commands import wait_for_end

PROGRAM = """
import os, time, types
import torch
from ode_transformer.decoding.search_processes import search_in_processes

def generate(sources, **search):
    print(os.getpid(), flush=True)
    time.sleep(60)

search_in_processes(types.SimpleNamespace(generate=generate), [torch.tensor([1])] * 2, processes=2, batch_size=1)
"""


def test_they_end_with_the_process_that_started_them() -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        numbers = [int(starter.stdout.readline()) for _ in range(2)]
        starter.kill()
        for number in numbers:
            wait_for_end(number)
    assert starter.returncode == -signal.SIGKILL
