"""The set-up of .venv, in a folder of its own and with a stand-in for Python, so that nothing is downloaded."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INPUTS = ("constraints.txt", "constraints-dev.txt", "requirements-fairseq.txt", "setup.py")

# Its `-m venv` makes an environment out of this very script; its pip writes down what it was asked for and fails at
# the call of the number FAIL_AT. All other questions are answered by the real one.
STAND_IN = f"""#!/usr/bin/env bash
if [[ "$1 $2" == "-m venv" ]]; then
    mkdir -p "$3/bin" && cp "$0" "$3/bin/python"
elif [[ "$1 $2" == "-m pip" ]]; then
    echo "${{*:4}}" >> "$PIP_CALLS"
    echo "ERROR: a reason" >&2
    (( $(wc -l < "$PIP_CALLS") != ${{FAIL_AT:-0}} ))
else
    exec {sys.executable} "$@"
fi
"""


class Checkout:
    """A folder with the scripts and the files that the set-up reads."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.calls, self.python = folder / "checkout", folder / "pip-calls", folder / "python"
        for name in ("scripts", ".ci"):
            shutil.copytree(ROOT / name, self.folder / name)
        for name in INPUTS:
            shutil.copy(ROOT / name, self.folder)
        self.python.write_text(STAND_IN)
        self.python.chmod(0o755)

    def run(self, script: str = "environment.sh", *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"PYTHON": str(self.python), "PIP_CALLS": str(self.calls)} | variables
        command = ["bash", self.folder / "scripts" / script, *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_an_interrupted_set_up_is_completed_and_then_left_alone(checkout: Checkout) -> None:
    failed = checkout.run(FAIL_AT="2")
    assert failed.returncode == 1
    assert failed.stderr.startswith("environment.sh: pip could not install PyTorch: ERROR: a reason (")
    assert failed.stderr.count("\n") == 1
    half_installed = checkout.folder / ".venv/lib/python3.11/site-packages/half-1.0.dist-info"
    half_installed.mkdir(parents=True)
    assert checkout.run().returncode == 0
    assert not half_installed.exists()
    calls = checkout.calls.read_text().splitlines()[2:]
    assert ["--require-hashes" in call for call in calls] == [False, False, True, False]
    assert "torch==" in calls[1]  # before anything that depends on it, which would choose another build
    assert checkout.run().stdout == ""
    assert checkout.calls.read_text().splitlines()[2:] == calls
