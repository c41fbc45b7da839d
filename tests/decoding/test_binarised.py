"""How a split is divided into batches, and teacher forcing against a loop over single sentences."""

import math
import shutil
from pathlib import Path

import pytest
import torch
from plain_models import MAX_POSITIONS, binarise

from ode_transformer.decoding.binarised import Split
from ode_transformer.decoding.teacher_forcing import cross_entropy, predict_tokens, surprisals
from ode_transformer.decoding.trained_model import TrainedModel, load_trained_model

# Of sources and targets, without end symbol.
LENGTHS = [(3, 9), (5, 2), (MAX_POSITIONS, 2), (1, 1), (2, MAX_POSITIONS + 9), (30, 8), (7, 7), (4, 3)]


@pytest.fixture
def split(untrained: Path, tmp_path: Path) -> Split:
    folder = shutil.copytree(untrained.parent, tmp_path / "model")
    binarise(folder, "train", [("s " * source, "e " * target) for source, target in LENGTHS])
    return Split(load_trained_model(folder / "model.pt", folder), folder, "train")


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


PAIRS = [("▁The s", "▁D er e"), ("s s s s s s", "e"), ("▁The", "e e r e r"), ("t", "t t")]


@pytest.fixture(scope="module")
def loaded(untrained: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainedModel, Split]:
    """Model and data."""
    folder = shutil.copytree(untrained.parent, tmp_path_factory.mktemp("forced") / "model")
    binarise(folder, "forced", PAIRS)
    trained = load_trained_model(folder / "model.pt", folder)
    return trained, Split(trained, folder, "forced")


def test_batches_agree_with_single_sentences(loaded: tuple[TrainedModel, Split]) -> None:
    trained, split = loaded
    model = trained.model
    total, tokens, best = 0.0, 0, {}
    with torch.no_grad():
        for row in split.rows(range(len(PAIRS))):
            shifted = torch.cat([row["target"][-1:], row["target"][:-1]])[None]
            scores = model(row["source"][None], shifted)
            for position, token in enumerate(row["target"].tolist()):
                total -= math.log(scores[0, position].softmax(-1)[token].item())
                tokens += 1
                best[row["id"], position] = scores[0, position].argmax().item()
    batches = map(split.sample, split.batches(None, 1000))
    (batch,) = forced = list(predict_tokens(model, batches, trained.target_dictionary.pad()))
    assert not batch.real.all()
    assert cross_entropy(forced) == pytest.approx(total / tokens, rel=1e-4)
    assert int(batch.real.sum()) == tokens
    for number, predicted, real in zip(batch.numbers, batch.predicted, batch.real, strict=True):
        for position in range(int(real.sum())):
            assert predicted[position] == best[int(number), position]


def test_surprisal_is_the_loss_of_each_token_in_bits(loaded: tuple[TrainedModel, Split]) -> None:
    trained, split = loaded
    model = trained.model
    bits = [value for number in range(len(PAIRS)) for value in surprisals(model, split.sample([number]))]
    batches = map(split.sample, split.batches(None, 1000))
    loss = cross_entropy(predict_tokens(model, batches, trained.target_dictionary.pad()))
    assert sum(bits) / len(bits) * math.log(2) == pytest.approx(loss, rel=1e-5)
