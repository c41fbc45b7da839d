import pytest

from ode_transformer.support import console
from ode_transformer.support.errors import UserError


def test_arguments_after_the_first_dashes_are_for_fairseq() -> None:
    assert console.split_arguments(["a", "--b"]) == (["a", "--b"], [])
    assert console.split_arguments(["a", "--", "--seed", "--", "3"]) == (["a"], ["--seed", "--", "3"])


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (UserError("no\nfile"), 2, "x: error: no file\n"),
        (OSError("full"), 2, "x: error: full\n"),
        (KeyboardInterrupt(), 130, "x: interrupted; run the same command to resume\n"),
    ],
)
def test_exit_status(error: BaseException, status: int, line: str, capsys) -> None:
    def fail() -> None:
        raise error

    assert console.exit_status("x", fail) == status
    assert capsys.readouterr().err == line
    assert console.exit_status("x", lambda: None) == 0


def test_progress_is_printed_at_intervals_and_at_the_end(monkeypatch, capsys) -> None:
    clock = iter([0.0, 4.0, 6.0, 7.0, 7.5, 59.0, 61.0, 61.0, 90.0])
    monkeypatch.setattr(console.time, "monotonic", lambda: next(clock))
    meter = console.ProgressMeter("lines", 3000)
    for count in (1000, 2000, 3000):  # after 4 seconds, 6 seconds, at the end
        meter.update(count, " read")
    assert capsys.readouterr().err == "  lines: 2,000 of 3,000 read\n  lines: 3,000 of 3,000 read\n"
    assert [meter.is_save_due() for _ in range(3)] == [False, True, False]
