"""fairseq-train: resumes, spreads over processes and recomputes activations without changing a number; learns."""

import json
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from commands_for_tests import (
    BATCHES,
    NO_DROPOUT,
    USER_DIR,
    Text,
    lines_of,
    parameters,
    run,
    succeed,
    train,
    training,
)

from ode_transformer.checkpoints.reading import load_checkpoint

pytestmark = pytest.mark.slow


def assert_identical(ours: object, other: object, place: str = "checkpoint") -> None:
    """The same containers with the same values, tensors to the last bit."""
    assert type(ours) is type(other), place
    if isinstance(ours, torch.Tensor):
        assert torch.equal(ours, other), place
    elif isinstance(ours, dict):
        assert ours.keys() == other.keys(), place
        for key in ours:
            assert_identical(ours[key], other[key], f"{place}[{key!r}]")
    elif isinstance(ours, list | tuple):
        assert len(ours) == len(other), place
        for number, pair in enumerate(zip(ours, other, strict=True)):
            assert_identical(*pair, f"{place}[{number}]")
    else:
        assert ours == other, place


def losses_in(log: Path) -> list[float]:
    """The training losses, base 2, in the order in which they were written."""
    entries = [json.loads(line) for line in log.read_text().splitlines() if line.startswith('{"')]
    return [float(entry["loss"]) for entry in entries if "loss" in entry]


RK2 = "ode_transformer_rk2_tiny"
DROPOUT = ("--dropout", 0.2, "--attention-dropout", 0.1, "--activation-dropout", 0.1)
FUSED = ("--optimizer", "fused_adam", "--criterion", "fused_label_smoothed_cross_entropy")


@pytest.mark.parametrize(
    ("arch", "options"),
    [
        (RK2, ("--decoder-ode-scheme", "rk2", "--dropout", 0.2, "--word-dropout-prob", 0.1)),
        ("reformer_fast_tiny", (*DROPOUT, "--max-joint-cells", 1000, "--checkpoint-activations", *FUSED)),
    ],
)
def test_a_resumed_training_equals_an_uninterrupted_one_to_the_last_bit(
    text: Text, tmp_path: Path, arch: str, options: tuple[object, ...]
) -> None:
    # Otherwise fairseq keeps the first epoch's batches as long as it runs, and makes others when it starts again.
    options = (*options, "--update-epoch-batch-itr", "True")
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    middle, end = BATCHES - 3, BATCHES + 5
    train(text, straight, arch, end, *options)
    # Stopped within an epoch, then exactly between two: the position in the data is stored differently.
    for updates in (middle, BATCHES, end):
        train(text, stopped, arch, updates, *options)
    for name in ("checkpoint1.pt", "checkpoint_last.pt"):
        ours, other = (load_checkpoint(directory / name) for directory in (stopped, straight))
        for key in ("model", "last_optimizer_state"):
            assert_identical(ours[key], other[key], f"{name}[{key!r}]")
        # fairseq adds an entry for every time that the training was started.
        assert_identical(ours["optimizer_history"][-1], other["optimizer_history"][-1], name)
    assert ours["optimizer_history"][-1]["num_updates"] == end
    assert len(ours["last_optimizer_state"]["state"]) > 50  # Adam's moments of every parameter are in it


def test_fused_forms_and_fairseqs_resume_each_other(text: Text, tmp_path: Path) -> None:
    options = (*NO_DROPOUT, "--weight-decay", 0.01)
    whole = parameters(train(text, tmp_path / "whole", RK2, 4, *options))
    for updates, choice in ((1, ()), (3, FUSED), (4, ())):
        mixed = parameters(train(text, tmp_path / "mixed", RK2, updates, *options, *choice))
    for name in whole:
        if not name.endswith("k_proj.bias"):  # whose gradient is rounding: a softmax does not see it
            torch.testing.assert_close(
                mixed[name], whole[name], rtol=1e-4, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}"
            )


def test_two_processes_make_the_update_of_one_that_accumulates(text: Text, tmp_path: Path) -> None:
    # 7 batches in an epoch: in every fourth update one of the two processes has nothing to do.
    options = (*NO_DROPOUT, "--batch-size", 6)
    alone = train(text, tmp_path / "alone", RK2, 6, *options, "--update-freq", 2)
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    together = (
        *training(text, tmp_path / "two", RK2, 6, *options, "--ddp-backend", "legacy_ddp"),
        *("--distributed-backend", "gloo", "--distributed-no-spawn", "--distributed-world-size", 2),
        *("--distributed-init-method", f"tcp://localhost:{port}"),
    )
    with ThreadPoolExecutor(2) as threads:
        for done in threads.map(lambda rank: run("train", *together, "--distributed-rank", rank), range(2)):
            assert done.returncode == 0, done.stderr
    one, two = (parameters(path) for path in (alone, tmp_path / "two" / "checkpoint_last.pt"))
    for name in one:
        torch.testing.assert_close(two[name], one[name], rtol=1e-6, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}")
    assert (one["encoder.layer_norm.weight"] - 1).abs().max() > 1e-3  # it started at 1


@pytest.mark.parametrize(
    ("arch", "flags"), [(RK2, ("--decoder-ode-scheme", "rk4")), ("reformer_fast_tiny", ())], ids=["rk4", "reformer"]
)
def test_recomputing_activations_changes_no_number(
    text: Text, tmp_path: Path, arch: str, flags: tuple[object, ...]
) -> None:
    states, losses = [], []
    for name, option in (("kept", ()), ("recomputed", ("--checkpoint-activations",))):
        log = tmp_path / f"{name}.log"
        options = (*flags, "--log-file", log, *option)
        states.append(parameters(train(text, tmp_path / name, arch, 2, *options)))
        losses.append(losses_in(log))
    assert len(losses[0]) >= 2
    assert losses[0] == losses[1]
    assert_identical(*states)


@pytest.mark.parametrize(("name", "least"), [("euler", 36), ("rk2", 36), ("rk4", 36), ("reformer_fast", 38)])
def test_it_learns_the_sentences_by_heart(text: Text, learned: Callable[[str], Path], name: str, least: int) -> None:
    checkpoint = learned(name)
    losses = losses_in(checkpoint.parent / "train.log")
    assert losses[0] > 7  # log2 of the 196 pieces is 7.6
    assert losses[-1] < 0.5
    # Not a wider beam: fairseq ends a search once as many translations have ended as the beam is wide, and beside one
    # that is certain those are the shorter ones.
    options = ("--path", checkpoint, "--gen-subset", "train", "--beam", 1, "--required-batch-size-multiple", 1)
    output = succeed("generate", text.data, "--user-dir", USER_DIR, "--cpu", *options)
    references, translations = lines_of(output, "T"), lines_of(output, "H")
    right = sum(translations[number][1] == reference for number, (reference,) in references.items())
    assert len(references) == 40
    assert right >= least
