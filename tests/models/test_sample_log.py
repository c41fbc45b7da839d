"""Sample translations in a training log, once after each update."""

import json
import logging
from pathlib import Path

import pytest
import torch
from batches import EOS, PAD, pair_sample
from models_for_tests import small_model

from ode_transformer.models.trained_model import load_trained_model


def sample(lengths: list[int]) -> dict[str, torch.Tensor]:
    return pair_sample(lengths, [6] * len(lengths))["net_input"]


def test_samples_are_logged_once_after_an_update(caplog: pytest.LogCaptureFixture) -> None:
    model = small_model(arch="reformer", log_samples=2)
    with caplog.at_level(logging.INFO):
        model(**sample([9]))  # without any update, as an analysis does
        model.train().set_num_updates(41)
        model(**sample([9]))
        model.eval()(**sample([3, 4]))  # too short
        assert not caplog.messages
        for lengths in ([7, 9, 10, 11], [12]):
            model(**sample(lengths))
    (logged,) = map(json.loads, caplog.messages)
    assert logged["updates"] == 42
    sources = sample([7, 9, 10, 11])["src_tokens"]
    words = [" ".join(f"w{number - 4}" for number in row.tolist() if number > EOS) for row in sources]
    assert [text["source"] for text in logged["samples"]] == words[1:3]
    assert all(len(text["reference"].split()) == 5 for text in logged["samples"])
    for source, text in zip(sources[1:3], logged["samples"], strict=True):  # each word is the most probable one
        output = [int(word[1:]) + 4 for word in text["output"].split()]
        logits = model(source[None], None, torch.tensor([[EOS, *output]]))[0]
        logits[..., PAD] = -torch.inf
        assert output
        assert logits[0].argmax(-1)[: len(output)].tolist() == output


def test_a_model_that_is_only_loaded_logs_nothing(untrained: Path, caplog: pytest.LogCaptureFixture) -> None:
    model, *_ = load_trained_model(untrained, untrained.parent)
    caplog.clear()
    with caplog.at_level(logging.INFO):
        model(**sample([9]))
        assert not caplog.messages
        model.train().set_num_updates(4)
        model.eval()(**sample([9]))
        assert json.loads(caplog.messages[-1])["updates"] == 5
