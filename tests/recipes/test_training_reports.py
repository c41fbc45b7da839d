import json

import pytest

from ode_transformer.recipes.training_reports import print_report


def test_losses_are_printed_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    inner = json.dumps({"epoch": 1, "loss": "8.25", "num_updates": "100", "wall": "90"})
    valid = json.dumps({"epoch": 1, "valid_loss": "7.5", "valid_num_updates": "100"})
    for line in (f"2026 | INFO | train_inner | {inner}", f"2026 | INFO | valid | {valid}", "chatter", inner):
        print_report(line)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["1.5", "min", "update", "100", "loss", "8.25"],
        ["update", "100", "validation", "loss", "7.5"],
    ]
