import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import ode_transformer
from ode_transformer.support import console


def test_progress_is_printed_at_intervals_and_at_the_end(monkeypatch, capsys) -> None:
    clock = iter([0.0, 4.0, 6.0, 7.0, 7.5, 59.0, 61.0, 61.0, 90.0])
    monkeypatch.setattr(console.time, "monotonic", lambda: next(clock))
    meter = console.ProgressMeter("lines", 3000)
    for count in (1000, 2000, 3000):  # after 4 seconds, 6 seconds, at the end
        meter.update(count, " read")
    assert capsys.readouterr().err == "  lines: 2,000 of 3,000 read\n  lines: 3,000 of 3,000 read\n"
    assert [meter.is_save_due() for _ in range(3)] == [False, True, False]


WHILE_LOADING = """
import sys
from ode_transformer.support.console import quiet_interrupts
with quiet_interrupts():
    import slow_module
"""
WHILE_WORKING = """
from ode_transformer.support.console import quiet_interrupts
with quiet_interrupts():
    try:
        print("ready", flush=True)
        import time
        time.sleep(60)
    except KeyboardInterrupt:
        raise SystemExit(7)
"""
# As numpy does, it turns the interrupt into another error.
SLOW_MODULE = """
import time
try:
    print("ready", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    raise RecursionError
"""


@pytest.mark.parametrize(("code", "status"), [(WHILE_LOADING, 130), (WHILE_WORKING, 7)])
def test_an_interrupt_is_silent(tmp_path: Path, code: str, status: int) -> None:
    (tmp_path / "slow_module.py").write_text(SLOW_MODULE)
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{Path(ode_transformer.__file__).parents[1]}"}
    with subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30)[1] == ""
    assert process.returncode == status
