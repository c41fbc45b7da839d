from ode_transformer.support import console


def test_progress_is_printed_at_intervals_and_at_the_end(monkeypatch, capsys) -> None:
    clock = iter([0.0, 4.0, 6.0, 7.0, 7.5])
    monkeypatch.setattr(console.time, "monotonic", lambda: next(clock))
    meter = console.ProgressMeter("lines", 3000)
    for count in (1000, 2000, 3000):  # after 4 seconds, 6 seconds, at the end
        meter.update(count, " read")
    assert capsys.readouterr().err == "  lines: 2,000 of 3,000 read\n  lines: 3,000 of 3,000 read\n"
