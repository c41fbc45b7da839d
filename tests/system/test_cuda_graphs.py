"""fairseq-train --cuda-graphs trains as without it, by a stand-in for the graphs on a CPU."""

import json
import re
import socket
import subprocess
from pathlib import Path

import graph_stand_in
import pytest
import torch
from commands_for_tests import COMMANDS, ENVIRONMENT, NO_DROPOUT, Text, parameters, succeed, training

FUSED = ("--optimizer", "fused_adam", "--criterion", "fused_label_smoothed_cross_entropy")

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    graph_stand_in.stand_in(monkeypatch.setattr)


def train(text: Text, folder: Path, updates: int, *options: object) -> tuple[dict[str, torch.Tensor], str]:
    """Train RK2, and return the parameters and the log."""
    words = training(text, folder, "ode_transformer_rk2_tiny", updates, *FUSED, *options)
    words = tuple(word for word in words if word != "--disable-validation")
    output = succeed("train", *words, "--update-epoch-batch-itr", "True")
    return parameters(folder / "checkpoint_last.pt"), output


def shares(log: str) -> list[tuple[float, float]]:
    """Return the shares of replays and padding that fairseq's lines at the end of the epochs show."""
    reports = [json.loads(line) for line in re.findall(r"\| train \| (\{.*\})", log)]
    return [(float(report["train_replayed"]), float(report["train_padding"])) for report in reports]


def assert_close(ours: dict[str, torch.Tensor], other: dict[str, torch.Tensor], **tolerance: float) -> None:
    assert ours.keys() == other.keys()
    for name in ours:
        if name.endswith(("in_proj.bias", "kv_proj.bias")) and tolerance["atol"]:
            continue  # its gradient at the keys is rounding: a softmax does not see it
        torch.testing.assert_close(ours[name], other[name], **tolerance, msg=lambda message, n=name: f"{n}: {message}")


ALL_AT_ONCE = (
    *("--update-freq", 2, "--sentence-avg", "--store-ema", "--ema-decay", 0.9),
    *("--valid-subset", "valid", "--validate-interval-updates", 3),
)


def test_it_trains_as_without_recordings(text: Text, tmp_path: Path) -> None:
    options = (*NO_DROPOUT, *ALL_AT_ONCE)
    unrecorded, _ = train(text, tmp_path / "unrecorded", 8, *options)
    recorded, log = train(text, tmp_path / "recorded", 8, *options, "--cuda-graphs")
    replayed, padding = shares(log)[-1]
    assert replayed > 0.5
    assert 0 < padding < 0.3
    assert_close(recorded, unrecorded, rtol=1e-3, atol=1e-5)


def test_a_resumed_recorded_training_equals_an_uninterrupted_one_to_the_last_bit(text: Text, tmp_path: Path) -> None:
    whole, _ = train(text, tmp_path / "whole", 9, "--cuda-graphs")
    for updates in (5, 9):
        resumed, _ = train(text, tmp_path / "resumed", updates, "--cuda-graphs")
    assert_close(resumed, whole, rtol=0, atol=0)


def test_two_processes_reduce_the_recorded_gradients(text: Text, tmp_path: Path) -> None:
    """As one process without recordings, which sums two batches in each update."""
    alone, _ = train(text, tmp_path / "alone", 8, *NO_DROPOUT, "--update-freq", 2)
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"tcp://localhost:{free.getsockname()[1]}"
    recorded = ("--user-dir", Path(graph_stand_in.__file__).parent, "--cuda-graphs")
    words = (
        *training(text, tmp_path / "two", "ode_transformer_rk2_tiny", 8, *FUSED, *NO_DROPOUT, *recorded),
        *("--ddp-backend", "legacy_ddp", "--distributed-backend", "gloo", "--distributed-no-spawn"),
        *("--distributed-world-size", 2, "--distributed-init-method", address, "--update-epoch-batch-itr", "True"),
    )
    commands = [[COMMANDS / "fairseq-train", *map(str, words), f"--distributed-rank={rank}"] for rank in (0, 1)]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, env=ENVIRONMENT, **pipes) for command in commands]
    for process in processes:
        _, errors = process.communicate()
        assert process.returncode == 0, errors[-2000:]
    assert_close(parameters(tmp_path / "two" / "checkpoint_last.pt"), alone, rtol=1e-3, atol=1e-5)
