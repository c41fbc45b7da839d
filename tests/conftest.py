"""The text and the trainings that several files of tests start from."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from commands_for_tests import NO_DROPOUT, Text, prepare, train


@pytest.fixture(scope="session")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of random parameters, with its dictionaries and pieces beside it: made in less than a second."""
    from checkpoint_for_tests import make_model  # here, because other tests need no fairseq

    return make_model(tmp_path_factory.mktemp("untrained"))


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Text:
    return prepare(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="session")
def trained(text: Text, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training far from its end: checkpoint1.pt … checkpoint5.pt, one for each epoch."""
    directory = tmp_path_factory.mktemp("trained")
    train(text, directory, "ode_transformer_rk2_tiny", 40)
    return directory


@pytest.fixture(scope="session")
def learned(text: Text, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The checkpoint of a training until it knows the sentences, with euler, rk2 or rk4 in both stacks."""

    @cache
    def checkpoint(method: str) -> Path:
        directory = tmp_path_factory.mktemp(method)
        options = (*NO_DROPOUT, "--label-smoothing", 0, "--batch-size", 20, "--lr", 0.01, "--no-epoch-checkpoints")
        more = ("--decoder-ode-scheme", method, "--log-file", directory / "train.log")
        return train(text, directory, f"ode_transformer_{method}_tiny", 300, *options, *more)

    return checkpoint
