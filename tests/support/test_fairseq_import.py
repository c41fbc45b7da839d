import subprocess
import sys

SCRIPT = """
import gc, sys
from ode_transformer.support.fairseq_import import import_fairseq
assert not {"torch", "numpy"} & set(sys.modules)
collections = []
gc.callbacks.append(lambda phase, facts: collections.append(phase))
import_fairseq()
assert not collections and gc.isenabled() and gc.get_freeze_count() > 100_000, (len(collections), gc.get_freeze_count())
"""


def test_fairseq_is_imported_without_a_look_for_garbage() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
