import io
import json
import math

import pytest

from ode_transformer.recipes.training_reports import TrainingProgress, loss_report


def test_losses_are_read_and_nothing_else() -> None:
    # null: of what is followed by layer, if no update since the last report was
    inner = json.dumps({"epoch": 1, "loss": "8.25", "num_updates": "100", "wall": "90", "depth_a": None})
    valid = json.dumps({"epoch": 1, "valid_loss": "7.5", "valid_num_updates": "100"})
    reports = f"2026 | INFO | train_inner | {inner}", f"2026 | INFO | valid | {valid}"
    broken = (
        *("chatter", "| valid | 3", '{"train_loss": "8", "train_num_updates": "100"}', '{"valid_num_updates": "5"}'),
        *('{"valid_loss": null, "valid_num_updates": "5"}', '{"valid_loss": "3", "valid_num_updates": null}'),
        *('{"loss": "x", "num_updates": "5"}', '{"loss": [1], "num_updates": "5"}'),
    )
    assert [loss_report(line) for line in reports] == [
        {"epoch": 1, "loss": 8.25, "num_updates": 100, "wall": 90},
        {"num_updates": 100, "valid_loss": 7.5},
    ]
    assert not any(map(loss_report, broken))


def test_the_time_that_is_left_is_at_most_that_to_the_last_update(capsys: pytest.CaptureFixture[str]) -> None:
    inner = json.dumps({"loss": "8.25", "num_updates": "100", "wall": "90", "ups": "1.5"})
    line = f"2026 | INFO | train_inner | {inner}"
    for minutes, expected in ((math.inf, 10.0), (11.0, 9.5), (60.0, 10.0)):
        TrainingProgress(minutes, last_update=1000)(line)
        assert capsys.readouterr().out == f"  {expected} minutes left  update 100 of 1,000  loss 8.25\n"


class Screen(io.StringIO):
    """Output that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_progress_is_one_line_on_a_terminal_and_few_lines_elsewhere() -> None:
    inner = {"loss": "8.25", "num_updates": "1100", "wall": "90", "wps": "4321.5"}
    log = [
        "chatter",
        f"2026 | INFO | train_inner | {json.dumps(inner)}",
        f"2026 | INFO | valid | {json.dumps({'valid_loss': '7.5', 'valid_num_updates': '1100'})}",
        f"2026 | INFO | train_inner | {json.dumps(inner | {'wall': '120', 'num_updates': '1200'})}",
    ]
    last = "2.0 minutes left  update 1,200  4,322 tokens/s  loss 8.25  validation loss 7.50\n"
    for output in (Screen(), io.StringIO()):
        with TrainingProgress(5, past_minutes=1, output=output) as progress:
            for line in log:
                progress(line)
        written = output.getvalue()
        assert written.endswith(f"  {last}")
        assert written.count("\n") == (1 if output.isatty() else 2)


def test_the_validation_at_the_end_says_at_which_update() -> None:
    progress = TrainingProgress(last_update=163, output=io.StringIO())
    inner = {"loss": "8.25", "num_updates": "100", "wall": "60", "ups": "2"}
    progress(f"2026 | INFO | train_inner | {json.dumps(inner)}")
    progress(f"2026 | INFO | valid | {json.dumps({'valid_loss': '7.5', 'valid_num_updates': '163'})}")
    assert str(progress) == "0.0 minutes left  update 163 of 163  loss 8.25  validation loss 7.50"
