"""The set-up of .venv, run for real in a folder of its own, on machines that lack something.

Where a test says so, PATH or PYTHON offers stand-ins, so that nothing is downloaded. What a user reads
last is one line.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INPUTS = ("constraints.txt", "requirements-fairseq.txt", "setup.py", "pyproject.toml")
SILENT_INDEX = "http://127.0.0.1:9/simple"  # the discard port: nothing listens

# A Python whose `-m venv` makes an environment out of this very script; its pip writes down what it was asked
# for and fails from the Nth call on, if FAIL_FROM says so. All other questions are answered by the real one.
STAND_IN = f"""#!/usr/bin/env bash
if [[ "$1 $2" == "-m venv" ]]; then
    mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && touch "$3/pyvenv.cfg"
elif [[ "$1 $2" == "-m pip" ]]; then
    [[ $3 != --version ]] || exit 0
    echo "${{*:4}}" >> "$PIP_CALLS"
    while (($#)); do [[ $1 != --report ]] || echo '{{}}' > "$2"; shift; done
    if [[ -n ${{FAIL_FROM:-}} ]] && (( $(wc -l < "$PIP_CALLS") >= FAIL_FROM )); then
        echo "ERROR: Operation cancelled by user" >&2
        exit 1
    fi
elif [[ "$2" == *"import torch, fairseq"* || "$2" == *importlib.metadata* ]]; then
    exit "${{TORCH_IS_MISSING:-0}}"
else
    exec {sys.executable} "$@"
fi
"""


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


class Checkout:
    """A folder with the files that the set-up reads, and a folder that comes first on PATH."""

    def __init__(self, root: Path) -> None:
        self.root = root / "checkout"
        self.bin = root / "bin"
        self.calls = root / "pip-calls"
        self.bin.mkdir(parents=True)
        shutil.copytree(ROOT / "scripts", self.root / "scripts")
        shutil.copytree(ROOT / ".ci", self.root / ".ci")
        for name in INPUTS:
            shutil.copy(ROOT / name, self.root)
        executable(self.bin / "df", "#!/bin/sh\necho header\necho fake 999999 0 888888 0% /\n")

    @property
    def venv(self) -> Path:
        return self.root / ".venv"

    @property
    def state(self) -> str:
        return (self.venv / ".set-up").read_text()

    def run(self, command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "PYTHON", "VIRTUAL_ENV"))}
        kept |= {
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "PYTHON": sys.executable,
            "PIP_CALLS": str(self.calls),
        }
        return subprocess.run(
            ["bash", "-c", command],
            cwd=self.root,
            env=kept | variables,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def set_up(self, **variables: str) -> subprocess.CompletedProcess[str]:
        return self.run("bash scripts/environment.sh", **variables)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def only_line(result: subprocess.CompletedProcess[str]) -> str:
    """What stderr says: exactly one line, and the script has failed."""
    assert result.returncode != 0, result.stdout
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    return lines[0]


def fake_python(folder: Path, version: str, *, has_venv: bool = True) -> str:
    """A Python that knows its version only."""
    return str(
        executable(
            folder / "python",
            "#!/bin/sh\n"
            f'case "$2" in *python_version*) echo CPython {version} ;; *) exit {int(not has_venv)} ;; esac\n',
        )
    )


class TestMachineLacksSomething:
    @pytest.mark.parametrize("version", ["3.9.2", "3.10.13", "3.13.0", "2.7.18"])
    def test_python_of_another_version_is_named(self, checkout: Checkout, tmp_path: Path, version: str) -> None:
        python = fake_python(tmp_path / "other", version)
        line = only_line(checkout.set_up(PYTHON=python))
        assert "Python 3.11 or 3.12 is needed" in line
        assert f"{python} is CPython {version}" in line

    def test_every_python_that_was_found_is_named(self, checkout: Checkout, tmp_path: Path) -> None:
        broken = "#!/bin/sh\necho 'command not found' >&2\nexit 127\n"  # as a version manager's placeholder
        executable(checkout.bin / "python3.11", broken)
        executable(checkout.bin / "python3.12", broken)
        shutil.copy(fake_python(tmp_path / "other", "3.8.18"), checkout.bin / "python3")
        line = only_line(checkout.set_up(PYTHON=""))
        assert "python3 is CPython 3.8.18" in line
        assert "python3.11 is" not in line

    def test_no_python_runs(self, checkout: Checkout) -> None:
        assert "none of /nowhere/python runs" in only_line(checkout.set_up(PYTHON="/nowhere/python"))

    def test_placeholders_that_fail_are_passed_over(self, checkout: Checkout) -> None:
        executable(checkout.bin / "python3.11", "#!/bin/sh\nexit 127\n")
        executable(checkout.bin / "python3.12", "#!/bin/sh\nexit 127\n")
        (checkout.bin / "python3").symlink_to(sys.executable)
        command = 'set -euo pipefail; source scripts/environment.sh; find_python; echo "$FOUND_PYTHON"'
        assert checkout.run(command, PYTHON="").stdout.splitlines()[-1] == "python3"

    def test_venv_module_is_missing(self, checkout: Checkout, tmp_path: Path) -> None:
        python = fake_python(tmp_path / "other", "3.11.2", has_venv=False)
        line = only_line(checkout.set_up(PYTHON=python))
        assert "lacks venv and ensurepip" in line
        assert "python3.11-venv" in line

    def test_disk_is_too_full(self, checkout: Checkout) -> None:
        executable(checkout.bin / "df", "#!/bin/sh\necho header\necho fake 999 0 321 99% /\n")
        line = only_line(checkout.set_up())
        assert re.search(r"the disk is too full: the set-up needs \d{4} MB more .*\.venv takes 1.9 GB", line)
        assert "321 MB are free" in line

    def test_an_unknown_disk_is_let_through(self, checkout: Checkout) -> None:
        executable(checkout.bin / "df", "#!/bin/sh\nexit 1\n")
        command = (
            "set -euo pipefail; mkdir .venv; source scripts/environment.sh; check_disk 10 '1 GB'; echo let through"
        )
        assert checkout.run(command).stdout == "let through\n"

    def test_disk_is_too_full_for_the_cuda_build(self, checkout: Checkout) -> None:
        python = executable(checkout.root / "python", STAND_IN.replace("'{}'", """'"nvidia-cudnn"'"""))
        executable(checkout.bin / "df", "#!/bin/sh\necho header\necho fake 9999 0 4000 60% /\n")
        line = only_line(checkout.set_up(PYTHON=str(python), TORCH_IS_MISSING="1"))
        assert "the finished .venv takes 5.5 GB" in line

    @pytest.mark.parametrize(("system", "machine"), [("Darwin", "arm64"), ("Linux", "aarch64")])
    def test_other_platforms_have_no_wheel(self, checkout: Checkout, system: str, machine: str) -> None:
        executable(checkout.bin / "uname", f"#!/bin/sh\n[ $1 = -s ] && echo {system} || echo {machine}\n")
        assert f"this is {system} on {machine}" in only_line(checkout.set_up())

    def test_index_cannot_be_reached(self, checkout: Checkout) -> None:
        result = checkout.set_up(PIP_INDEX_URL=SILENT_INDEX, PIP_CONFIG_FILE="/dev/null", PIP_RETRIES="0")
        assert "the package index cannot be reached" in only_line(result)
        assert checkout.state.startswith("begun ")

    def test_disk_fills_up_while_pip_works(self, checkout: Checkout) -> None:
        message = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"
        python = STAND_IN.replace("Operation cancelled by user", message)
        result = checkout.set_up(PYTHON=str(executable(checkout.root / "python", python)), FAIL_FROM="4")
        assert "the disk is too full: no space left while installing torch" in only_line(result)

    def test_what_pip_says_is_passed_on(self, checkout: Checkout) -> None:
        # pip fails while it installs, but the question whether the index answers (without cache) succeeds.
        python = STAND_IN.replace("Operation cancelled by user", "No matching distribution found for torch")
        python = python.replace("[[ $3 != --version ]]", '[[ "$*" != *--no-cache-dir* && $3 != --version ]]')
        result = checkout.set_up(PYTHON=str(executable(checkout.root / "python", python)), FAIL_FROM="4")
        assert "could not install torch: ERROR: No matching distribution found for torch" in only_line(result)


def test_a_wheel_with_another_hash_is_refused(checkout: Checkout, tmp_path: Path) -> None:
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    wheel = tmp_path / "wheels" / f"ve_fairseq-0.12.3-{tag}-{tag}-manylinux_2_28_x86_64.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        metadata = "Metadata-Version: 2.1\nName: ve-fairseq\nVersion: 0.12.3\n"
        archive.writestr("ve_fairseq-0.12.3.dist-info/METADATA", metadata)
        archive.writestr("ve_fairseq-0.12.3.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: false\n")
        archive.writestr("ve_fairseq-0.12.3.dist-info/RECORD", "")
        archive.writestr("fairseq/__init__.py", "raise SystemExit('never to be run')\n")
    result = checkout.run(
        f"set -euo pipefail; {sys.executable} -m venv .venv; source scripts/environment.sh; install_fairseq",
        PIP_CONFIG_FILE="/dev/null",
        PIP_NO_INDEX="1",
        PIP_FIND_LINKS=str(wheel.parent),
    )
    assert "not the expected one: its SHA-256 differs" in only_line(result)
    assert not list(checkout.venv.glob("lib/*/site-packages/fairseq"))


class TestInterruption:
    @pytest.fixture
    def python(self, checkout: Checkout) -> str:
        return str(executable(checkout.root / "python", STAND_IN))

    @pytest.mark.parametrize("call", [1, 2, 3, 4, 5])
    def test_goes_on_where_it_stopped(self, checkout: Checkout, python: str, call: int) -> None:
        line = only_line(checkout.set_up(PYTHON=python, FAIL_FROM=str(call)))
        assert "interrupted while installing" in line
        assert not checkout.state.startswith("ready")
        assert len(checkout.calls.read_text().splitlines()) == call

        again = checkout.set_up(PYTHON=python)
        assert again.returncode == 0, again.stderr
        assert checkout.state.startswith("ready ")
        # The environment itself is made anew only if its pip had not been complete.
        assert ("found, going on" in again.stdout) == (call > 1)

    def test_a_ready_environment_is_left_alone(self, checkout: Checkout, python: str) -> None:
        assert checkout.set_up(PYTHON=python).returncode == 0
        calls = checkout.calls.read_text()
        again = checkout.set_up(PYTHON=python)
        assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
        assert checkout.calls.read_text() == calls

    @pytest.mark.parametrize("name", INPUTS[:3])
    def test_other_requirements_are_installed(self, checkout: Checkout, python: str, name: str) -> None:
        assert checkout.set_up(PYTHON=python).returncode == 0
        with (checkout.root / name).open("a") as file:
            file.write("# changed\n")
        again = checkout.set_up(PYTHON=python)
        assert "environment ready" in again.stdout

    def test_a_moved_environment_is_made_anew(self, checkout: Checkout, python: str) -> None:
        assert checkout.set_up(PYTHON=python).returncode == 0
        state = checkout.state
        (checkout.venv / ".set-up").write_text(state.replace(str(checkout.venv), "/elsewhere/.venv"))
        again = checkout.set_up(PYTHON=python)
        assert "found, going on" not in again.stdout
        assert checkout.state == state

    def test_half_installed_packages_are_forgotten(self, checkout: Checkout) -> None:
        site = checkout.venv / "lib" / "python3.11" / "site-packages"
        for name in ("whole-1.0.dist-info", "half-1.0.dist-info", "~umpy"):
            (site / name).mkdir(parents=True)
        (site / "whole-1.0.dist-info" / "INSTALLER").write_text("pip\n")
        checkout.run("source scripts/environment.sh; remove_half_installed")
        assert [path.name for path in site.iterdir()] == ["whole-1.0.dist-info"]

    def test_an_environment_of_the_users_own_is_kept(self, checkout: Checkout, python: str) -> None:
        checkout.run(f"{python} -m venv .venv; touch .venv/precious")
        again = checkout.set_up(PYTHON=python)
        assert "one was there" in again.stdout
        assert checkout.state.startswith("ready ")
        assert (checkout.venv / "precious").exists()

    def test_a_folder_in_the_way_is_kept(self, checkout: Checkout) -> None:
        checkout.venv.mkdir()
        (checkout.venv / "pyvenv.cfg").touch()
        assert "is in the way" in only_line(checkout.set_up())
        assert (checkout.venv / "pyvenv.cfg").exists()

    @pytest.mark.parametrize("name", ["conda-meta/history", "bin/python"])
    def test_another_kind_of_environment_is_kept(self, checkout: Checkout, python: str, name: str) -> None:
        file = executable(checkout.venv / name, "#!/bin/sh\n")
        assert "is in the way: it holds files that are not this script's" in only_line(checkout.set_up(PYTHON=python))
        assert file.exists()

    def test_a_link_to_another_environment_is_refused(self, checkout: Checkout, python: str, tmp_path: Path) -> None:
        other = tmp_path / "other"
        other.mkdir()
        (other / "precious").touch()
        checkout.venv.symlink_to(other)
        assert f".venv is a symbolic link to {other}: " in only_line(checkout.set_up(PYTHON=python))
        assert [path.name for path in other.iterdir()] == ["precious"]

    def test_fairseq_comes_with_its_hash_and_first(self, checkout: Checkout, python: str) -> None:
        assert checkout.set_up(PYTHON=python).returncode == 0
        calls = checkout.calls.read_text().splitlines()
        fairseq = next(i for i, call in enumerate(calls) if "requirements-fairseq.txt" in call)
        assert "--require-hashes" in calls[fairseq]
        assert "--no-deps" in calls[fairseq]
        assert all("-e " not in call for call in calls[:fairseq])


SCRIPTS = [*sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "scripts").rglob("*.sh")), ".ci/run"]


@pytest.mark.parametrize("script", SCRIPTS)
def test_help(checkout: Checkout, script: str) -> None:
    result = checkout.run(f"bash {script} --help")
    assert result.returncode == 0, result.stderr
    assert "usage:" in result.stdout.lower()
    assert not checkout.venv.exists()


@pytest.mark.parametrize("script", ["scripts/environment.sh", "scripts/test.sh", ".ci/run"])
def test_unknown_argument(checkout: Checkout, script: str) -> None:
    assert "unknown argument --fats" in only_line(checkout.run(f"bash {script} --fats"))
