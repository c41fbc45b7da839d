"""The text and the trainings that several files of tests start from."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock

if TYPE_CHECKING:
    from commands_for_tests import Text

# What needs PyTorch is imported by the fixtures: the process that hands out the tests, and some tests, need none.

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
    from plain_models import make_plain_model

    return make_plain_model(tmp_path_factory.mktemp("untrained"), log_samples=2)


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


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the schemes that a test registers."""
    from ode_transformer.numerics import tableau

    for names in ("_BY_NAME", "_NAMES"):
        monkeypatch.setattr(tableau, names, getattr(tableau, names).copy())
