"""The task that keeps pairs of too many positions out of the training."""

import logging
from pathlib import Path

import pytest
from checkpoint_for_tests import binarise, make_model
from commands_for_tests import SMALL
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

PAIRS = [("s s", "e"), ("s s s s s", "e e e e"), ("s", "e e e"), ("s s s", "e e e e e")]  # 6, 30, 8 and 24 positions


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_model(tmp_path_factory.mktemp("data")).parent
    for split in ("train", "valid"):
        binarise(folder, split, PAIRS)
    return folder


def lengths_kept(folder: Path, *flags: object, trained: bool = False, split: str = "train") -> list[int]:
    """Which pairs batches are made of."""
    words = [str(folder), "--task", "joint_translation", "-s", "en", "-t", "de", "--arch", "reformer_fast_tiny"]
    parser = options.get_training_parser()
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, [*words, *map(str, (*SMALL, *flags))]))
    task = tasks.setup_task(cfg.task)
    task.build_model(cfg.model, from_checkpoint=trained)
    task.load_dataset(split)
    batches = task.get_batch_iterator(task.dataset(split), max_tokens=100, max_positions=(50, 50))
    return sorted(int(number) for sample in batches.next_epoch_itr() for number in sample["id"])


def test_pairs_that_do_not_fit_stop_the_training_before_it_starts(folder: Path) -> None:
    reason = (
        r"2 of 4 sentence pairs have more grid positions than --max-joint-cells 23, the largest \(number 1\) 6 × 5: "
        "raise it, or"
    )
    with pytest.raises(ValueError, match=reason) as refused:
        lengths_kept(folder, "--max-joint-cells", 23)
    assert "\n" not in str(refused.value)


def test_or_they_are_left_out_with_a_word_about_it(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        kept = lengths_kept(folder, "--max-joint-cells", 24, "--joint-cells-overflow", "skip")
    assert kept == [0, 2, 3]
    assert "1 of 4 sentence pairs have more grid positions than --max-joint-cells 24" in caplog.text


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        ((), {}),
        (("--max-joint-cells", 30), {}),
        (("--max-joint-cells", 0), {}),
        (("--max-joint-cells", 6), {"split": "valid"}),
        (("--max-joint-cells", 6), {"trained": True}),
        (("--arch", "ode_transformer_euler_tiny"), {}),  # other models take the task as translation
    ],
)
def test_all_pairs_fit_by_default_without_a_limit_in_validation_and_after_training(
    folder: Path, flags: tuple[object, ...], options: dict
) -> None:
    assert lengths_kept(folder, *flags, **options) == [0, 1, 2, 3]
