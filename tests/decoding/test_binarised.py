"""How a split is divided into batches."""

import shutil
from pathlib import Path

import pytest
from checkpoint_for_tests import MAX_POSITIONS, binarise

from ode_transformer.decoding.binarised import Split
from ode_transformer.decoding.trained_model import load_trained_model

# Of sources and targets, without end symbol.
LENGTHS = [(3, 9), (5, 2), (MAX_POSITIONS, 2), (1, 1), (2, MAX_POSITIONS + 9), (30, 8), (7, 7), (4, 3)]


@pytest.fixture
def split(untrained: Path, tmp_path: Path) -> Split:
    folder = shutil.copytree(untrained.parent, tmp_path / "model")
    binarise(folder, "train", [("s " * source, "e " * target) for source, target in LENGTHS])
    model, _, task = load_trained_model(folder / "model.pt", folder)
    return Split(model, task, folder, "train", folder / "model.pt")


def test_sentences_that_are_too_long_are_left_out(split: Split) -> None:
    assert split.sentence_numbers() == [0, 1, 3, 5, 6, 7]
    assert split.sentence_numbers(6) == [0, 1, 3, 5]
    assert split.too_long.tolist() == [False, False, True, False, True, False, False, False]


@pytest.mark.parametrize("max_tokens", [1, 12, 20, 40, 1000])
def test_each_sentence_is_in_one_batch_and_batches_are_within_the_limit(split: Split, max_tokens: int) -> None:
    batches = split.batches(None, max_tokens)
    assert sorted(number for batch in batches for number in batch) == split.sentence_numbers()
    longest = [max(max(LENGTHS[number]) + 1 for number in batch) for batch in batches]
    assert longest == sorted(longest)
    for batch, length in zip(batches, longest, strict=True):
        assert len(batch) == 1 or len(batch) * length <= max_tokens
    assert len(batches) == {1: 6, 1000: 1}.get(max_tokens, len(batches))


def test_batches_of_a_grid_are_within_its_cells(split: Split) -> None:
    split.max_cells = 100
    batches = split.batches(None, 1000)
    assert sorted(number for batch in batches for number in batch) == split.sentence_numbers()
    for batch in batches:
        cells = len(batch) * split.lengths_by_side[:, batch].max(axis=1).prod()
        assert cells <= 100 or len(batch) == 1
    split.max_cells = 0
    assert len(batches) > len(split.batches(None, 1000)) == 1
