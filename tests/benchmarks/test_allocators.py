"""The comparison of allocators reads the last part of each training, which runs in the allocator's environment."""

import sys
from pathlib import Path

import allocators
import pytest

from ode_transformer.support.errors import UserError

TRAINING = """
import os, sys
rate = float(os.environ["RATE"])
for updates in (10, 20, 30):
    words = 60 if updates < 30 else rate
    print(f'x | INFO | train_inner | {{"epoch": 1, "update": 0.1, "loss": 9, "wpb": 50, "wps": {words}, ', end="")
    print(f'"num_updates": {updates}, "wall": {updates}}}')
"""


def test_the_time_is_that_of_the_last_part() -> None:
    command = [Path(sys.executable).name, "-c", TRAINING]
    seconds, mebibytes = allocators.measure(command, 30, {"RATE": "100"})
    assert seconds == 0.5
    assert 1 < mebibytes < 1000


def test_a_training_that_fails_is_named() -> None:
    command = [Path(sys.executable).name, "-c", "raise SystemExit('no data')"]
    with pytest.raises(UserError, match=r"python.* failed: no data$"):
        allocators.measure(command, 30, {})


def test_without_tcmalloc_nothing_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocators, "keep_memory", lambda: allocators.GNU_C_LIBRARY)
    monkeypatch.setattr(sys, "argv", ["allocators.py", "fairseq-train"])
    with pytest.raises(UserError, match="TCMalloc is not installed"):
        allocators.main()
