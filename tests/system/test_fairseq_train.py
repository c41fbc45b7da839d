"""fairseq-train: resumes without changing a number, wherever it is started; learns. Hydra's form is refused."""

import re
from pathlib import Path

import pytest
import torch
from commands_for_tests import BATCHES, USER_DIR, Text, lines_of, run, succeed, train, training

from ode_transformer.checkpoints.reading import load_checkpoint
from ode_transformer.cli import main

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
    return [float(loss) for loss in re.findall(r'\| train_inner \| .*?"loss": "(.*?)"', log.read_text())]


RK2 = "ode_transformer_rk2_tiny"
DROPOUT = ("--dropout", 0.2, "--attention-dropout", 0.1, "--activation-dropout", 0.1)
FUSED = ("--optimizer", "fused_adam", "--criterion", "fused_label_smoothed_cross_entropy")


@pytest.mark.parametrize(
    ("arch", "stops", "options"),
    [
        # Stopped within an epoch, then exactly between two: the position in the data is stored differently.
        (
            RK2,
            (BATCHES - 3, BATCHES),
            ("--decoder-ode-scheme", "rk2", "--dropout", 0.2, "--word-dropout-prob", 0.1, "--num-workers", 1),
        ),
        (
            "reformer_fast_tiny",
            (BATCHES - 3,),
            (*DROPOUT, "--max-joint-cells", 1000, "--checkpoint-activations", *FUSED),
        ),
    ],
)
def test_a_resumed_training_equals_an_uninterrupted_one_to_the_last_bit(
    text: Text, tmp_path: Path, arch: str, stops: tuple[int, ...], options: tuple[object, ...]
) -> None:
    # Otherwise fairseq keeps the first epoch's batches as long as it runs, and makes others when it starts again.
    options = (*options, "--update-epoch-batch-itr", "True")
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    end = BATCHES + 2
    train(text, straight, arch, end, *options)
    for updates in (*stops, end):
        train(text, stopped, arch, updates, *options)
    for name in ("checkpoint1.pt", "checkpoint_last.pt"):
        ours, other = (load_checkpoint(directory / name) for directory in (stopped, straight))
        for key in ("model", "last_optimizer_state"):
            assert_identical(ours[key], other[key], f"{name}[{key!r}]")
        # fairseq adds an entry for every time that the training was started.
        assert_identical(ours["optimizer_history"][-1], other["optimizer_history"][-1], name)
    assert ours["optimizer_history"][-1]["num_updates"] == end
    assert len(ours["last_optimizer_state"]["state"]) > 50  # Adam's moments of every parameter are in it


def epochs_in(log: str) -> list[int]:
    """The epochs that a training has begun."""
    return [int(epoch) for epoch in re.findall(r"begin training epoch (\d+)", log)]


def test_a_resumed_training_counts_on_how_long_it_has_not_improved(text: Text, tmp_path: Path) -> None:
    # The first validation is the best by the number of updates.
    worse = ("--best-checkpoint-metric", "num_updates", "--patience", 3)
    plateau = ("--lr-scheduler", "reduce_lr_on_plateau", "--lr-patience", 1, "--lr-shrink", 0.5, "--warmup-updates", 0)

    def epochs(folder: Path, last: int) -> list[int]:
        words = training(text, folder, RK2, 1000, *worse, *plateau, "--max-epoch", last, "--no-epoch-checkpoints")
        return epochs_in(succeed("train", *(word for word in words if word != "--disable-validation")))

    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    assert epochs(straight, 30) == [1, 2, 3, 4]
    assert [epochs(stopped, last) for last in (1, 2, 3, 30)] == [[1], [2], [3], [4]]
    ours, other = (load_checkpoint(folder / "checkpoint_last.pt") for folder in (stopped, straight))
    for key in ("model", "last_optimizer_state"):
        assert_identical(ours[key], other[key], key)
    assert ours["last_optimizer_state"]["param_groups"][0]["lr"] == 0.0025


def test_an_epoch_is_resumed_with_larger_batches_and_more_of_them(text: Text, tmp_path: Path) -> None:
    train(text, tmp_path, RK2, BATCHES - 1)
    log = succeed("train", *training(text, tmp_path, RK2, BATCHES + 1, "--update-freq", BATCHES))
    assert epochs_in(log) == [1, 2]  # one batch, then an epoch
    train(text, tmp_path, RK2, BATCHES + 7)
    log = succeed("train", *training(text, tmp_path, RK2, BATCHES + 8, "--batch-size", 10))
    assert f"epoch 3 is resumed at its batch 4 of {BATCHES // 2}: they are not those of the checkpoint" in log


def test_update_checkpoints_are_those_of_an_epochs_end_too(text: Text, tmp_path: Path) -> None:
    every = ("--save-interval-updates", BATCHES // 2, "--keep-interval-updates", 3)
    train(text, tmp_path, RK2, 3 * BATCHES, *every, "--no-epoch-checkpoints")
    names = ["checkpoint_2_16.pt", "checkpoint_3_20.pt", "checkpoint_3_24.pt", "checkpoint_last.pt"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    last, updates = (load_checkpoint(tmp_path / name) for name in ("checkpoint_last.pt", "checkpoint_3_24.pt"))
    for key in ("model", "last_optimizer_state", "optimizer_history"):
        assert_identical(updates[key], last[key])
    assert updates["extra_state"]["train_iterator"] == last["extra_state"]["train_iterator"]


@pytest.mark.parametrize("arch", [RK2, "transformer_tiny"])
def test_a_training_that_diverges_ends_in_one_line(text: Text, tmp_path: Path, arch: str) -> None:
    done = run("train", *training(text, tmp_path, arch, 100, "--lr", 1e9, "--lr-scheduler", "fixed"))
    assert done.returncode == 1
    line = done.stderr.splitlines()[-1]
    assert re.match(r"error: update \d+: gradients are Nan/Inf; the batch's sentences.*a lower --lr", line)
    assert len(set((tmp_path / "crash_batch.txt").read_text().split())) == 5
    assert "Traceback" not in done.stderr + done.stdout


def test_hydra_is_refused(text: Text, tmp_path: Path) -> None:
    words = ("task=translation", f"task.data={text.data}", "task.source_lang=en", "task.target_lang=de")
    words += (f"common.user_dir={USER_DIR}", "+model._name=ode_transformer_rk2_tiny", "common.cpu=true")
    words += ("criterion=cross_entropy", "optimizer=adam", "optimization.lr=[0.1]", "lr_scheduler=fixed")
    done = run("hydra-train", *words, "dataset.max_tokens=512", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: fairseq-hydra-train cannot train ode_transformer_rk2_tiny")
    assert 'use fairseq-train --user-dir "$(ode-transformer user-dir)"' in done.stderr
    assert "Traceback" not in done.stderr


def test_it_learns_the_sentences_by_heart(text: Text, learned: Path) -> None:
    losses = losses_in(learned.parent / "train.log")
    assert losses[0] > 7  # log2 of the 196 pieces is 7.6
    assert losses[-1] < 0.5
    # Not a wider beam: fairseq ends a search once as many translations have ended as the beam is wide, and beside one
    # that is certain those are the shorter ones.
    options = ("--path", learned, "--gen-subset", "valid", "--beam", 1, "--required-batch-size-multiple", 1)
    output = succeed("generate", text.data, "--user-dir", USER_DIR, "--cpu", *options)
    references, translations = lines_of(output, "T"), lines_of(output, "H")
    known = {number: reference.replace("<<unk>>", "<unk>") for number, (reference,) in references.items()}
    assert len(known) == 8
    assert known == {number: translation for number, (_, translation) in translations.items()}


def test_best_by_bleu_is_resumed_with_a_relative_user_dir_and_averaged(text: Text, tmp_path: Path) -> None:
    search = '{"beam": 2, "max_len_a": 0, "max_len_b": 4}'
    bleu = ("--eval-bleu", "--eval-bleu-args", search, "--eval-bleu-detok", "space", "--eval-bleu-detok-args", "{}")
    bleu += ("--eval-bleu-remove-bpe", "sentencepiece", "--eval-tokenized-bleu", "--eval-bleu-print-samples")
    best = ("--best-checkpoint-metric", "bleu", "--maximize-best-checkpoint-metric", "--keep-best-checkpoints", 2)
    often = ("--validate-interval-updates", 2, "--save-interval-updates", 2)
    for updates, user_dir in ((2, USER_DIR), (4, USER_DIR.name)):
        flags = training(text, tmp_path, RK2, updates, *bleu, *best, *often, "--user-dir", user_dir)
        succeed("train", *(word for word in flags if word != "--disable-validation"), cwd=USER_DIR.parent)
    assert type(load_checkpoint(tmp_path / "checkpoint_best.pt")["extra_state"]["best"]) is float
    assert main(["checkpoint", "average", str(tmp_path), "--best", "1", "--output", str(tmp_path / "a.pt")]) == 0
