"""Lines that say that a long piece of work goes on."""

import time

import pytest

from ode_transformer.support import console


def test_silence_is_broken_and_nothing_is_said_beside_other_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console, "SILENCE", 0.2)
    with console.report_silence("learning"):
        time.sleep(0.3)
    assert capsys.readouterr().err == "  learning: 0 seconds\n"
    with console.report_silence("learning"):
        for _ in range(8):
            time.sleep(0.1)
            console.print_progress("a line")
    assert set(capsys.readouterr().err.splitlines()) == {"a line"}
