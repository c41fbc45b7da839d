"""The text and the trainings that several files of tests start from."""

import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock

if TYPE_CHECKING:
    from commands_for_tests import Text

# What needs PyTorch is imported by the fixtures: the process that hands out the tests, and some tests, need none.
gc.set_threshold(20_000, 20)  # looking for garbage among all that is imported took a twentieth of the time

# A pipe whose end is that of the tests: forked_commands.SharedServer waits for it.
if "PYTEST_XDIST_WORKER" not in os.environ:
    PIPE = os.pipe()
    os.environ["END_OF_TESTS"] = f"/proc/{os.getpid()}/fd/{PIPE[0]}"


def pytest_collection_finish() -> None:
    gc.freeze()  # nor is there garbage among it at the end, where pytest looks for it five times


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
        filled = folder.with_suffix(".filled")
        with FileLock(folder.with_suffix(".lock")):
            if not filled.exists():
                fill(folder)
                filled.touch()
        return folder

    return folder_of


@pytest.fixture(scope="session")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of random parameters, with its dictionaries and pieces beside it: made in less than a second."""
    from checkpoint_for_tests import make_model

    return make_model(tmp_path_factory.mktemp("untrained"))


@pytest.fixture(scope="session")
def text(shared_folder: SharedFolder) -> "Text":
    from commands_for_tests import Text, prepare

    return Text(shared_folder("text", prepare))


@pytest.fixture(scope="session")
def learned(text: "Text", shared_folder: SharedFolder) -> Path:
    """A checkpoint trained until the sentences are known."""
    from commands_for_tests import NO_DROPOUT, succeed, training

    flags = [*NO_DROPOUT, "--decoder-ode-scheme", "rk2", "--label-smoothing", 0, "--lr", 0.02, "--save-interval", 1000]
    flags += ["--train-subset", "valid", "--batch-size", 8]  # all of its sentences

    def fill(folder: Path) -> None:
        log = succeed("train", *training(text, folder, "ode_transformer_rk2_tiny", 45, *flags))
        (folder / "train.log").write_text(log)

    return shared_folder("learned", fill) / "checkpoint_last.pt"
