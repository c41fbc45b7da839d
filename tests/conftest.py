"""The text and the trainings that several files of tests start from."""

import fcntl
import gc
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from commands_for_tests import NO_DROPOUT, Text, prepare, train

gc.set_threshold(20_000, 20)  # looking for garbage among all that is imported took a twentieth of the time

SharedFolder = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> SharedFolder:
    """Returns a folder by name, which all processes of pytest share; the first that asks for it fills it."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent

    def folder_of(name: str, fill: Callable[[Path], object]) -> Path:
        folder = base / "shared" / name
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder.with_suffix(".lock"), "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not os.stat(lock.name).st_size:
                fill(folder)
                lock.write("filled")
        return folder

    return folder_of


@pytest.fixture(scope="session")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of random parameters, with its dictionaries and pieces beside it: made in less than a second."""
    from checkpoint_for_tests import make_model  # here, because other tests need no fairseq

    return make_model(tmp_path_factory.mktemp("untrained"))


@pytest.fixture(scope="session")
def text(shared_folder: SharedFolder) -> Text:
    return Text(shared_folder("text", prepare))


# Architecture, updates and further flags of the trainings that go on until the sentences are known.
LEARNING = (*NO_DROPOUT, "--label-smoothing", 0, "--lr", 0.02, "--save-interval", 1000)
LEARNING = (*LEARNING, "--train-subset", "valid", "--batch-size", 8)  # all of its sentences
LEARNED: dict[str, tuple[object, ...]] = {
    "rk2": ("ode_transformer_rk2_tiny", 50, "--decoder-ode-scheme", "rk2"),
    "reformer_fast": ("reformer_fast_tiny", 50),
}


@pytest.fixture(scope="session")
def learned(text: Text, shared_folder: SharedFolder) -> Callable[[str], Path]:
    """The checkpoint of an entry of ``LEARNED``, trained when it is first asked for."""

    @cache
    def checkpoint(name: str) -> Path:
        arch, updates, *flags = LEARNED[name]

        def fill(folder: Path) -> None:
            train(text, folder, arch, updates, *LEARNING, "--log-file", folder / "train.log", *flags)

        return shared_folder(name, fill) / "checkpoint_last.pt"

    return checkpoint
