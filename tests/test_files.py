"""Files and folders: the lock of a folder, and texts of tables. The others are tested by those who write with them."""

import csv
import io
import subprocess
import sys
from pathlib import Path

import pytest

from ode_transformer.errors import UserError
from ode_transformer.files import csv_text, locked

HOLD = """
import sys, time
from pathlib import Path
from ode_transformer.files import locked
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


def test_csv_text() -> None:
    rows = [["name", "score"], ["a, b", 1.5], ['"c"', ""]]
    assert csv_text(rows) == 'name,score\n"a, b",1.5\n"""c""",\n'
    assert list(csv.reader(io.StringIO(csv_text(rows)))) == [[str(cell) for cell in row] for row in rows]
