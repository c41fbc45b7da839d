"""A training that is stopped anywhere goes on, and its progress; fairseq-train itself is played by a function here."""

import errno
import io
import json
from pathlib import Path

import pytest
import torch

from ode_transformer.checkpoints.reading import load_checkpoint, save_checkpoint
from ode_transformer.lab.recipes import training
from ode_transformer.lab.recipes.training import TrainingProgress, loss_report
from ode_transformer.support.errors import UserError


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Asks for a training; returns for each that was started until now whether it was to go on."""
    calls: list[bool] = []
    monkeypatch.setattr(training.commands, "run", lambda *_, append, **__: calls.append(append))

    def train(digest: str = "same", updates: int | None = None) -> list[bool]:
        training.train_or_resume([], tmp_path, digest, updates)
        return calls

    return train


def save(directory: Path, name: str, updates: int) -> Path:
    directory.mkdir(exist_ok=True)
    state = {"model": {"w": torch.full((100,), updates)}, "optimizer_history": [{"num_updates": updates}]}
    save_checkpoint(state, directory / name)
    return directory / name


def tear(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def test_a_training_that_has_made_its_updates_is_not_run_again(run, tmp_path: Path) -> None:
    assert run(updates=20) == [False]
    save(tmp_path / "checkpoints", "checkpoint_last.pt", 19)
    assert run(updates=20) == [False, True]
    save(tmp_path / "checkpoints", "checkpoint_last.pt", 20)
    assert run(updates=20) == [False, True]
    assert run() == [False, True, True]  # its end is not a number of updates


@pytest.mark.parametrize("missing", [False, True])
def test_a_torn_or_missing_last_checkpoint_is_replaced_by_the_newest_whole_one(
    missing: bool, run, tmp_path: Path
) -> None:
    run()
    folder = tmp_path / "checkpoints"
    last = save(folder, "checkpoint_last.pt", 30)
    for name, updates in (("checkpoint_1_9.pt", 9), ("checkpoint_2_10.pt", 10), ("checkpoint_best.pt", 8)):
        save(folder, name, updates)
    last.unlink() if missing else tear(last)
    tear(save(folder, "checkpoint_2_11.pt", 11))
    assert run(updates=20) == [False, True]
    assert load_checkpoint(last)["model"]["w"].eq(10).all()


def test_without_a_whole_checkpoint_training_starts_again(run, tmp_path: Path) -> None:
    run()
    last = save(tmp_path / "checkpoints", "checkpoint_last.pt", 30)
    tear(last)
    assert run(updates=20) == [False, True]
    assert not last.exists()
    assert last.with_name("checkpoint_last.torn").exists()


@pytest.mark.parametrize("failure", [MemoryError(), OSError(errno.EIO, "Input/output error")])
def test_a_checkpoint_that_cannot_be_read_now_is_kept(run, tmp_path: Path, monkeypatch, failure: Exception) -> None:
    run()
    last, older = (save(tmp_path / "checkpoints", f"checkpoint{name}.pt", 30) for name in ("_last", "1"))

    def fail(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr(torch, "load", fail)
    with pytest.raises((UserError, OSError, MemoryError)):
        run(updates=40)
    assert last.exists()
    assert older.exists()


# -- progress -----------------------------------------------------------------------------------------------------


def inner(**numbers: object) -> str:
    """A line of the log on the updates since the last report."""
    return f"2026 | INFO | train_inner | {json.dumps({'loss': '8.25', 'num_updates': '100', 'wall': '90'} | numbers)}"


def valid(updates: int) -> str:
    return f"2026 | INFO | valid | {json.dumps({'valid_loss': '7.5', 'valid_num_updates': str(updates)})}"


def test_losses_are_read_and_nothing_else() -> None:
    # null: of what is followed by layer, if no update since the last report was
    assert [loss_report(line) for line in (inner(depth_a=None), valid(100))] == [
        {"loss": 8.25, "num_updates": 100, "wall": 90},
        {"num_updates": 100, "valid_loss": 7.5},
    ]
    broken = ("chatter", '{"train_loss": "8", "train_num_updates": "100"}', '{"loss": "x", "num_updates": "5"}')
    assert not any(map(loss_report, broken))


class Screen(io.StringIO):
    """Output that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_progress_is_one_line_on_a_terminal_and_few_lines_elsewhere() -> None:
    log = ["chatter", inner(wps="4321.5"), valid(1100), inner(wall="120", num_updates="1200")]
    last = "2.0 minutes left  update 1,200  4,322 tokens/s  loss 8.25  validation loss 7.50\n"
    for output in (Screen(), io.StringIO()):
        with TrainingProgress(5, past_minutes=1, output=output) as progress:
            for line in log:
                progress(line)
        written = output.getvalue()
        assert written.endswith(f"  {last}")
        assert written.count("\n") == (1 if output.isatty() else 2)
