"""Teacher forcing against a loop over single sentences."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint_for_tests import binarise

from ode_transformer.decoding.binarised import Split
from ode_transformer.decoding.teacher_forcing import cross_entropy, predict_tokens, surprisals
from ode_transformer.decoding.trained_model import load_trained_model

PAIRS = [("▁The s", "▁D er e"), ("s s s s s s", "e"), ("▁The", "e e r e r"), ("t", "t t")]


@pytest.fixture(scope="module")
def loaded(untrained: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Split]:
    """Model, task and data."""
    folder = shutil.copytree(untrained.parent, tmp_path_factory.mktemp("forced") / "model")
    binarise(folder, "forced", PAIRS)
    model, _, task = load_trained_model(folder / "model.pt", folder)
    return model, task, Split(model, task, folder, "forced", folder / "model.pt")


def test_batches_agree_with_single_sentences(loaded: tuple[Any, Any, Split]) -> None:
    model, task, split = loaded
    total, tokens, best = 0.0, 0, {}
    with torch.no_grad():
        for row in split.rows(range(len(PAIRS))):
            shifted = torch.cat([row["target"][-1:], row["target"][:-1]])[None]
            lengths = torch.tensor([len(row["source"])])
            scores, _ = model(row["source"][None], lengths, shifted)
            for position, token in enumerate(row["target"].tolist()):
                total -= math.log(scores[0, position].softmax(-1)[token].item())
                tokens += 1
                best[row["id"], position] = scores[0, position].argmax().item()
    batches = map(split.sample, split.batches(None, 1000))
    (batch,) = forced = list(predict_tokens(model, batches, task.target_dictionary.pad()))
    assert not batch.real.all()
    assert cross_entropy(forced) == pytest.approx(total / tokens, rel=1e-4)
    assert int(batch.real.sum()) == tokens
    for number, predicted, real in zip(batch.numbers, batch.predicted, batch.real, strict=True):
        for position in range(int(real.sum())):
            assert predicted[position] == best[int(number), position]


def test_surprisal_is_the_loss_of_each_token_in_bits(loaded: tuple[Any, Any, Split]) -> None:
    model, task, split = loaded
    bits = [value for number in range(len(PAIRS)) for value in surprisals(model, split.sample([number]))]
    batches = map(split.sample, split.batches(None, 1000))
    loss = cross_entropy(predict_tokens(model, batches, task.target_dictionary.pad()))
    assert sum(bits) / len(bits) * math.log(2) == pytest.approx(loss, rel=1e-5)
