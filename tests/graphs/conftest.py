"""Trainings on a CPU are recorded by the stand-in."""

import pytest
from graph_stand_in import RecomputingRecorder

from ode_transformer.graphs.recording import RECORDERS
from ode_transformer.models import adam


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RECORDERS, "cpu", RecomputingRecorder)
    monkeypatch.setattr(adam, "FLAT_DEVICES", {"cpu"})
