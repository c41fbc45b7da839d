"""The comparison at equal time chooses by validation and never by the test set."""

import os
import subprocess
import sys
from pathlib import Path

import equal_time


def test_the_clock_of_cpu_time_stands_still_in_sleep() -> None:
    code = "import time; start = time.time(); time.sleep(0.5); print(time.time() - start)"
    environment = os.environ | {"PYTHONPATH": str(Path(equal_time.__file__).parent / "cpu_clock")}
    slept = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert float(slept.stdout) < 0.1
