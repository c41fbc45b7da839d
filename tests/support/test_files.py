"""The lock of a folder. The others of this module are tested by those who write with them."""

import subprocess
import sys
from pathlib import Path

import pytest

from ode_transformer.support.errors import UserError
from ode_transformer.support.files import locked

HOLD = """
import sys, time
from pathlib import Path
from ode_transformer.support.files import locked
with locked(Path(sys.argv[1]), "training"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_folder_is_locked_as_long_as_its_process_lives(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, tmp_path], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with (
            pytest.raises(UserError, match=f"^{tmp_path}: another process is preparing here$"),
            locked(tmp_path, "preparing"),
        ):
            pytest.fail("two processes hold it")
        other.kill()
        other.wait()
    with locked(tmp_path, "preparing"):
        pass
    assert list(tmp_path.iterdir()) == []
