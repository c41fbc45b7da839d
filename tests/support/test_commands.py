import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ended_processes import wait_for_end

from ode_transformer.support import commands


def test_the_user_decides_on_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for threads in ("1", "2"):
        commands.run(python("import os; print(os.environ['OMP_NUM_THREADS'])"), tmp_path / "log", threads=1)
        assert (tmp_path / "log").read_text() == f"{threads}\n"
        monkeypatch.setenv("OMP_NUM_THREADS", "2")


def python(code: str) -> list[str]:
    return [Path(sys.executable).name, "-c", code]


def test_output_goes_to_the_log_and_to_progress(tmp_path: Path) -> None:
    log, lines = tmp_path / "log", []
    commands.run(python("print('one'); print('two')"), log, lines.append)
    assert log.read_text() == "one\ntwo\n"
    assert lines == ["one\n", "two\n"]
    lines.clear()
    slow = "import time; print('a', end='', flush=True); time.sleep(0.5); print('b', end='')"
    commands.run(python(slow), tmp_path / "slow", lines.append)
    assert lines == ["ab"]
    commands.run(python("print('three')"), log, append=True)
    assert log.read_text() == "one\ntwo\nthree\n"
    commands.run(python("print('four')"), log)
    assert log.read_text() == "four\n"


def test_a_command_ends_with_the_process_that_started_it_and_its_log_has_all_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = "import os, time; print(os.getpid(), flush=True); os.kill(os.getppid(), 9); time.sleep(60)"
    call = f"commands.run({python(command)}, Path({str(log)!r}), print)"
    starter = f"from pathlib import Path; from ode_transformer.support import commands; {call}"
    assert subprocess.run([sys.executable, "-c", starter]).returncode == -signal.SIGKILL
    wait_for_end(int(log.read_text()))


def test_a_full_disk_is_named_where_it_cuts_the_log(tmp_path: Path) -> None:
    fill = "while True: print('x' * 1000)"
    code = (
        "import subprocess; from pathlib import Path; from ode_transformer.support import commands\n"
        f"subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=2m', 'none', {str(tmp_path)!r}], check=True)\n"
        f"commands.run({python(fill)}, Path({str(tmp_path / 'log')!r}))"
    )
    words = ["unshare", "--map-root-user", "--mount"]  # a disk that this process alone sees
    if subprocess.run([*words, "true"]).returncode:
        pytest.skip("no mount here")
    done = subprocess.run([*words, sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].endswith(f"failed, see {tmp_path}/log: No space left on device")
