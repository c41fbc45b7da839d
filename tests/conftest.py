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


# Architecture, updates and further flags of the trainings that go on until the sentences are known. The base Reformer
# stops before; it steps joint layers by RK2, without a PreNet.
LEARNING = (*NO_DROPOUT, "--label-smoothing", 0, "--batch-size", 20, "--lr", 0.01, "--no-epoch-checkpoints")
LEARNED: dict[str, tuple[object, ...]] = {
    **{name: (f"ode_transformer_{name}_tiny", 300, "--decoder-ode-scheme", name) for name in ("euler", "rk2", "rk4")},
    "reformer_fast": ("reformer_fast_tiny", 200, "--max-joint-cells", 900),
    "reformer_base": (
        *("reformer_base_tiny", 40, "--encoder-layers", 0, "--decoder-ode-scheme", "rk2"),
        *("--ode-coefficients", "gate", "--max-relative-positions", 4),
    ),
}


@pytest.fixture(scope="session")
def learned(text: Text, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The checkpoint of an entry of ``LEARNED``, trained when it is first asked for."""

    @cache
    def checkpoint(name: str) -> Path:
        directory = tmp_path_factory.mktemp(name)
        arch, updates, *flags = LEARNED[name]
        return train(text, directory, arch, updates, *LEARNING, "--log-file", directory / "train.log", *flags)

    return checkpoint
