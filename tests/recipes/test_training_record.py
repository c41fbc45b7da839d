"""A training that is stopped anywhere goes on; fairseq-train itself is played by a function here."""

import errno
from pathlib import Path

import pytest
import torch

from ode_transformer.checkpoints.reading import load_checkpoint, save_checkpoint
from ode_transformer.recipes import training
from ode_transformer.support.errors import UserError


class Trainer:
    """Stands in for ``commands.run``; notes whether it was to go on."""

    def __init__(self) -> None:
        self.calls: list[bool] = []

    def __call__(self, command, log, progress=None, append=False, threads=None) -> None:
        self.calls.append(append)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Asks for a training; returns what has been started until now."""
    trainer = Trainer()
    monkeypatch.setattr(training.commands, "run", trainer)

    def train(digest: str = "same", updates: int | None = None) -> list[bool]:
        training.train(["fairseq-train"], tmp_path, tmp_path / "checkpoints", digest, None, updates)
        return trainer.calls

    return train


def save(directory: Path, name: str, updates: int, **others: object) -> Path:
    directory.mkdir(exist_ok=True)
    state = {"model": {"w": torch.full((100,), updates)}, "optimizer_history": [{"num_updates": updates}]}
    save_checkpoint(state | others, directory / name)
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


def test_checkpoints_of_another_training_are_left_alone(run, tmp_path: Path) -> None:
    run()
    last = save(tmp_path / "checkpoints", "checkpoint_last.pt", 20)
    with pytest.raises(UserError, match="of a training with other flags or data"):
        run("other", updates=20)
    assert last.exists()
    assert run(updates=30) == [False, True]


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


@pytest.mark.parametrize(("best", "copied"), [(4.0, True), (3.5, False), (None, False)])
def test_a_first_save_that_was_interrupted_gets_its_best_checkpoint(
    best: float | None, copied: bool, run, tmp_path: Path
) -> None:
    run()
    folder = tmp_path / "checkpoints"
    save(folder, "checkpoint1.pt", 20, extra_state={"val_loss": 4.0 if best else None, "best": best})
    assert run(updates=20) == [False]
    assert (folder / "checkpoint_best.pt").exists() == copied
    if copied:
        assert load_checkpoint(folder / "checkpoint_best.pt")["model"]["w"].eq(20).all()


def test_without_a_whole_checkpoint_training_starts_again(run, tmp_path: Path) -> None:
    run()
    last = save(tmp_path / "checkpoints", "checkpoint_last.pt", 30)
    tear(last)
    assert run(updates=20) == [False, True]
    assert not last.exists()
    assert last.with_name("checkpoint_last.torn").exists()


@pytest.mark.parametrize(
    "failure",
    [
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: you tried"),
        MemoryError(),
        OSError(errno.EIO, "Input/output error"),
        UserError("an option is refused"),
    ],
)
def test_a_checkpoint_that_cannot_be_read_now_is_kept(run, tmp_path: Path, monkeypatch, failure: Exception) -> None:
    run()
    last, older = (save(tmp_path / "checkpoints", f"checkpoint{name}.pt", 30) for name in ("_last", "1"))

    def fail(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr(torch, "load", fail)
    with pytest.raises((UserError, OSError)):
        run(updates=40)
    assert last.exists()
    assert older.exists()


EPOCHS, UPDATES = ["checkpoint1.pt", "checkpoint2.pt", "checkpoint10.pt"], ["checkpoint_2_9.pt", "checkpoint_2_10.pt"]
BEST = ["checkpoint.best_bleu_3.0001.pt", "checkpoint.best_bleu_20.0000.pt"]
METRIC = {"best_checkpoint_metric": "bleu", "keep_best_checkpoints": 1}


@pytest.mark.parametrize(
    ("options", "within_epoch", "removed"),
    [
        ({"keep_last_epochs": 2}, 0, ["checkpoint1.pt"]),
        ({"keep_last_epochs": 1}, 7, ["checkpoint1.pt", "checkpoint2.pt"]),
        ({"keep_last_epochs": -1, "keep_interval_updates": -1}, 7, []),
        ({"keep_interval_updates": 1}, 7, ["checkpoint_2_9.pt"]),
        ({"keep_interval_updates": 1}, 0, []),  # fairseq keeps them at the end of an epoch
        ({"keep_interval_updates": 1, "keep_interval_updates_pattern": 3}, 7, []),
        ({**METRIC, "maximize_best_checkpoint_metric": True}, 0, BEST[:1]),
        ({**METRIC, "maximize_best_checkpoint_metric": False}, 0, BEST[1:]),
        ({**METRIC, "best_checkpoint_metric": "loss"}, 0, []),
        (None, 0, []),
    ],
)
def test_a_save_that_was_interrupted_before_old_checkpoints_were_removed_is_completed(
    options: dict | None, within_epoch: int, removed: list[str], run, tmp_path: Path
) -> None:
    run(updates=20)
    folder = tmp_path / "checkpoints"
    for name in [*EPOCHS, *UPDATES, *BEST, "checkpoint_best.pt", "mine.pt"]:
        save(folder, name, 1)
    position = {"train_iterator": {"iterations_in_epoch": within_epoch}}
    save(
        folder, "checkpoint_last.pt", 20, extra_state=position, **({"cfg": {"checkpoint": options}} if options else {})
    )
    before = {path.name for path in folder.iterdir()}
    assert run(updates=20) == [False]
    assert sorted(before - {path.name for path in folder.iterdir()}) == sorted(removed)
