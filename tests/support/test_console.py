"""Progress of long loops."""

import pytest

from ode_transformer.support import console
from ode_transformer.support.console import ProgressMeter


def test_progress_has_an_estimate(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = 100.0
    monkeypatch.setattr(console.time, "monotonic", lambda: now)
    meter, quick = ProgressMeter("\x1b[2J", 40, 10), ProgressMeter("lines", 40)
    quick.add(40)  # soon enough to say nothing
    meter.add(2)
    now += 60
    meter.add(3)
    now += 1
    meter.update(40)
    assert capsys.readouterr().err == "  �[2J: 15 of 40, 5.0 minutes left\n  �[2J: 40 of 40\n"
