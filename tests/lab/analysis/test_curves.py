"""Curves from fairseq's logs."""

import gc
import time
from pathlib import Path

from ode_transformer.lab.analysis.curves import LoggedRun, curve
from ode_transformer.lab.analysis.training_log import read_log

START = "2026-01-01 | INFO | fairseq_cli.train | training on 1 devices (GPUs/TPUs)\n"
EPOCH_END = (
    '2026-01-01 | INFO | train | {"epoch": 1, "train_loss": "4.5", "train_num_updates": "20", '
    '"train_train_wall": "0", "train_wall": "150"}\n'
)


def train(updates: int, wall: int, loss: float = 5.0, epoch: int = 1, extra: str = "") -> str:
    return (
        f'2026-01-01 | INFO | train_inner | {{"epoch": {epoch}, "update": 0.5, "loss": "{loss}", '
        f'"nll_loss": "4.5", "num_updates": "{updates}", "train_wall": "0", "wall": "{wall}"{extra}}}\n'
    )


def valid(updates: int, loss: float = 4.0, name: str = "valid", epoch: int = 1) -> str:
    return (
        f'2026-01-01 | INFO | {name} | {{"epoch": {epoch}, "{name}_loss": "{loss}", '
        f'"{name}_nll_loss": "3.5", "{name}_num_updates": "{updates}"}}\n'
    )


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(lines))
    return path


def series(path: Path, split: str) -> list[tuple[int, float | None, float]]:
    return [(point.updates, point.minutes, point.loss) for point in read_log(path) if point.split == split]


def test_a_clock_that_stands_still_after_a_resume_is_replaced(tmp_path: Path) -> None:
    resumed = [train(updates, 0).replace('"train_wall": "0"', '"train_wall": "30"') for updates in (20, 30)]
    log = write(tmp_path / "log", START, train(10, 60), START, *resumed)
    assert series(log, "train") == [(10, 1.0, 5.0), (20, 1.5, 5.0), (30, 2.0, 5.0)]


def test_training_and_validation(tmp_path: Path):
    log = write(
        tmp_path / "log",
        "2026-01-01 | INFO | fairseq_cli.train | {'_name': None, 'common': {'seed': 1}}\n",
        START,
        train(10, 60, 6.0),
        train(20, 120, 5.0),
        valid(20, 4.5),
        EPOCH_END,
        train(30, 210, 4.0, epoch=2),
    )
    # The end of the epoch sets the clock of its update anew, validation included.
    assert series(log, "train") == [(10, 1.0, 6.0), (20, 2.5, 5.0), (30, 3.5, 4.0)]
    assert series(log, "valid") == [(20, 2.5, 4.5)]
    assert series(log, "train-epoch") == [(20, 2.5, 4.5)]
    first = read_log(log)[0]
    assert (first.split, first.epoch, first.nll_loss) == ("train", 1, 4.5)


def test_reports_that_a_resumed_run_overtook_are_left_out(tmp_path: Path):
    log = write(
        tmp_path / "log",
        *(START, train(10, 60), train(20, 120), valid(20, 9.0), train(30, 180)),
        *(START, train(15, 60, 1.0), train(20, 120, 2.0)),
    )
    assert series(log, "train") == [(10, 1.0, 5.0), (15, 4.0, 1.0), (20, 5.0, 2.0)]
    assert series(log, "valid") == []


def norms(updates: int, gnorm: float, gate: float | None = None) -> str:
    shown = "null" if gate is None else f'"{gate}"'
    return train(updates, updates, extra=f', "gnorm": "{gnorm}", "depth/encoder/1/weight_1": {shown}')


def test_seeds_of_one_name_are_one_curve(tmp_path: Path):
    logs = [
        write(tmp_path / "1", norms(10, 1.0), norms(20, 2.0), norms(30, 7.0)),
        write(tmp_path / "2", norms(10, 3.0), norms(20, 5.0)),
        write(tmp_path / "3", norms(5, 9.0), norms(10, 2.0), norms(20, 2.0)),
    ]
    seeds = [LoggedRun("rk2", log, read_log(log)) for log in logs]
    assert curve(seeds, "train", "updates", "gnorm") == [(10.0, 2.0, 1.0, 3.0), (20.0, 3.0, 2.0, 5.0)]


def test_an_epoch_that_training_reports_again_counts_once(tmp_path: Path) -> None:
    stopped = EPOCH_END.replace('"20"', '"15"')
    log = write(tmp_path / "log", START, train(10, 60), stopped, START, train(20, 60), EPOCH_END)
    assert [updates for updates, _, _ in series(log, "train-epoch")] == [20]


def test_reading_takes_as_long_as_the_log_is(tmp_path: Path) -> None:
    """Four times the epochs take about four times as long; sixteen times, if each looks through all before it."""
    seconds = []
    for count in (1000, 4000):
        lines = [train(n, n, epoch=n) + valid(n, epoch=n) + EPOCH_END.replace(" 1,", f" {n},") for n in range(1, count)]
        log = write(tmp_path / f"{count}", *(line.replace('"20"', f'"{n}"') for n, line in enumerate(lines, start=1)))
        gc.disable()  # it would look through what other tests have left
        try:
            start = time.process_time()
            assert len(read_log(log)) == 3 * (count - 1)
            seconds.append(time.process_time() - start)
        finally:
            gc.enable()
    assert seconds[1] < 8 * seconds[0]
