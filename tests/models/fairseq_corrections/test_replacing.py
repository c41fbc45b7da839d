"""The corrections and fairseq's version."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import fairseq
from commands_for_tests import USER_DIR

from ode_transformer.models.fairseq_corrections import replacing


def test_corrections_are_written_for_the_pinned_fairseq() -> None:
    assert replacing.VERSION == fairseq.__version__ == version("ve-fairseq")
    assert not replacing._MISSING


def test_another_fairseq_is_named_in_one_line() -> None:
    code = (
        "import fairseq; from fairseq.tasks import FairseqTask; from fairseq.trainer import Trainer\n"
        "fairseq.__version__ = '0.13.0'; del Trainer.train_step, FairseqTask.has_sharded_data\n"
        "import ode_transformer.models"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(USER_DIR).parent)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "0.13.0" in line]
    assert line.endswith(
        "fairseq 0.13.0: its faults are corrected as those of 0.12.3, the tested version; "
        "not found, so not corrected: FairseqTask.has_sharded_data, Trainer.train_step"
    )
