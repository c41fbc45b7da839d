"""Processes that share a search, on their own; test_translate.py has what they translate."""

import os
import signal
import subprocess
import sys
from contextlib import suppress

from ended_processes import wait_for_end

PROGRAM = """
import os, signal, time, types
import torch
from ode_transformer.decoding.translation_hub import TranslationHub

def generate(sources, **search):
    os.write(1, f"{os.getpid()}\\n".encode())  # at once: two processes write
    time.sleep(600)

signal.signal(signal.SIGTERM, signal.SIG_IGN)  # which its processes must not inherit
cfg = types.SimpleNamespace(dataset=types.SimpleNamespace(batch_size=1))
hub = types.SimpleNamespace(generate=generate, cfg=cfg)
TranslationHub.search_in_processes(hub, [torch.tensor([1])] * 2, processes=2)
"""


def test_they_end_with_the_process_that_started_them() -> None:
    numbers: list[int] = []
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        try:
            numbers += [int(starter.stdout.readline()) for _ in range(2)]
            starter.kill()
            for number in numbers:
                wait_for_end(number)
        finally:
            starter.kill()
            for number in numbers:
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
    assert starter.returncode == -signal.SIGKILL
