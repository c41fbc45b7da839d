"""Teacher forcing against a loop over single sentences."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from checkpoint_for_tests import binarise

from ode_transformer.errors import UserError
from ode_transformer.evaluation.sentences import batched, read_sentences
from ode_transformer.evaluation.teacher_forcing import cross_entropy, teacher_forced
from ode_transformer.evaluation.trained_model import load_trained_model

PAIRS = [("▁The s", "▁D er e"), ("s s s s s s", "e"), ("▁The", "e e r e r"), ("t", "t t")]


@pytest.fixture(scope="module")
def loaded(untrained: Path) -> tuple:
    binarise(untrained.parent, "forced", PAIRS)
    return load_trained_model(untrained, untrained.parent)


def test_batches_keep_every_sentence_and_the_limit(loaded: tuple, untrained: Path) -> None:
    task = loaded[2]
    rows = read_sentences(task, untrained, untrained.parent, "forced")
    sizes = [batch["target"].shape for batch in batched(task, "forced", rows, 14)]
    assert all(count * longest <= 14 for count, longest in sizes)
    for limit in (1, 14, 1000):
        numbers = [int(n) for batch in batched(task, "forced", rows, limit) for n in batch["id"]]
        assert sorted(numbers) == [0, 1, 2, 3]


def test_batches_agree_with_single_sentences(loaded: tuple, untrained: Path) -> None:
    model, _, task = loaded
    rows = read_sentences(task, untrained, untrained.parent, "forced")
    padding = task.target_dictionary.pad()
    total, tokens, best = 0.0, 0, {}
    with torch.no_grad():
        for row in rows:
            shifted = torch.cat([row["target"][-1:], row["target"][:-1]])[None]
            lengths = torch.tensor([len(row["source"])])
            scores, _ = model(row["source"][None], lengths, shifted)
            for position, token in enumerate(row["target"].tolist()):
                total -= math.log(scores[0, position].softmax(-1)[token].item())
                tokens += 1
                best[row["id"], position] = scores[0, position].argmax().item()
    forced = list(teacher_forced(model, batched(task, "forced", rows, 1000), padding))
    assert len(forced) == 1
    assert not forced[0].real.all()
    assert cross_entropy(forced) == pytest.approx(total / tokens, rel=1e-4)
    batch = forced[0]
    for number, predicted, real in zip(batch.numbers, batch.predicted, batch.real, strict=True):
        for position in range(int(real.sum())):
            assert predicted[position] == best[int(number), position]


def test_a_split_that_is_not_there(loaded: tuple, untrained: Path) -> None:
    with pytest.raises(UserError, match="no data of the split 'nowhere'"):
        read_sentences(loaded[2], untrained, untrained.parent, "nowhere")
