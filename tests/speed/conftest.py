"""Trainings on a CPU are recorded by the stand-in, and their parameters are joined."""

import pytest
from graph_stand_in import RecomputingRecorder

from ode_transformer.speed import flat, recording


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "build_recorder", lambda _: RecomputingRecorder())
    monkeypatch.setattr(flat, "suits", lambda _: True)
