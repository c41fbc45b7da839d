"""Versions, hardware, commit and command behind a measurement: published with every number."""

import importlib.metadata
import os
import platform
import re
import shlex
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import torch

from ode_transformer.support.files import PACKAGE


def provenance(command: Sequence[str], on_gpu: bool, threads: int | None = None) -> dict[str, str]:
    """Collect versions, hardware, commit, date and command.

    :param command: the command line that repeats the measurement
    :param on_gpu: the measurement ran on a GPU, not on the processor
    :param threads: of the measured process; by default as many as this one has
    """
    try:
        _git("ls-files", "--error-unmatch", "__init__.py")  # not another repository, in which the package is installed
        commit = _git("describe", "--always", "--dirty", "--exclude=*")
    except (OSError, subprocess.CalledProcessError):
        commit = "unknown"
    return {
        "torch": torch.__version__,
        "fairseq": importlib.metadata.version("ve-fairseq"),
        "device": torch.cuda.get_device_name() if on_gpu else f"{os.cpu_count()} cores of {_processor_name()}",
        "threads": str(threads or torch.get_num_threads()),
        "commit": commit,
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "command": shlex.join(command),
    }


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(PACKAGE), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _processor_name() -> str:
    processors = Path("/proc/cpuinfo")  # of Linux
    text = processors.read_text(encoding="utf-8") if processors.exists() else ""
    name = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    return name[1].strip() if name else platform.processor() or platform.machine()
