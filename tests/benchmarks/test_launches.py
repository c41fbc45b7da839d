"""Operators of a training step and of a search beside fairseq's, as a GPU would launch them.

At the papers' batch sizes a step on a GPU takes as long as its launches, so the counts stand for its time.
"""

from functools import cache
from typing import Any

import pytest
import torch
from measuring import Launches, MeasuredSystem, Setting, as_on_a_gpu
from systems import SYSTEMS

SETTING = Setting(64, 128, 4, 6, 1000, 8, 12, 12, 0.2, 4, "cpu", "fp32", 1)


class NoGrad(torch.no_grad):
    """``torch.inference_mode``, in which operators that consist of others are seen as these."""

    def __new__(cls, function: Any = True) -> Any:
        return torch.no_grad()(function) if callable(function) else super().__new__(cls)

    def __init__(self, mode: Any = True) -> None:
        super().__init__()


@pytest.fixture(autouse=True)
def no_grad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "inference_mode", NoGrad)


@cache
def launches(name: str) -> tuple[int, int]:
    """Return the launches of a training step without its update, and of a search over 12 tokens."""
    system = MeasuredSystem(SYSTEMS[name].arch, SYSTEMS[name].options, SETTING, SYSTEMS[name].fused)
    training = system.kernels()
    system.prepare_to_decode()
    system.model.eval()
    with as_on_a_gpu():
        system.decode()
        with Launches() as search:
            system.decode()
    return training, search.number


@pytest.mark.parametrize(
    ("ours", "theirs", "training", "search"),
    [
        ("euler-6", "fairseq-6", 0.95, 0.90),
        ("rk2-6", "fairseq-12", 0.99, 0.91),
        ("rk2-gate-6", "fairseq-12", 1.08, 0.92),
        ("rk4-6", "fairseq-24", 1.03, 0.92),
        ("euler-24", "fairseq-24", 0.94, 0.92),
    ],
)
def test_launches_are_fewer_than_those_of_fairseq(ours: str, theirs: str, training: float, search: float) -> None:
    for number, limit in enumerate((training, search)):
        assert launches(ours)[number] / launches(theirs)[number] < limit + 0.005


def test_launches_grow_linearly_with_the_layers() -> None:
    six, twelve, twenty_four = (sum(launches(f"euler-{layers}")) for layers in (6, 12, 24))
    assert twenty_four - twelve == 2 * (twelve - six)
