"""Sample translations in a training log are those of greedy decoding, once after each update."""

import json
import logging

import pytest
import torch
from models_for_tests import EOS, PAD, batch, small_model, teacher_forced

from ode_transformer.models.sample_log import greedy_translations


def sample(lengths: list[int]) -> dict[str, torch.Tensor]:
    source = batch(lengths)
    previous = teacher_forced(batch([6] * len(lengths), seed=1))
    return {"src_tokens": source, "src_lengths": source.ne(PAD).sum(1), "prev_output_tokens": previous}


@pytest.mark.parametrize("options", [{"encoder_ode_scheme": "rk2"}, {"arch": "reformer"}])
def test_each_word_is_the_most_probable_one(options: dict) -> None:
    model, inputs = small_model(**options), sample([9, 12])
    words = greedy_translations(model, inputs["src_tokens"], inputs["src_lengths"])
    previous = torch.cat([words.new_full((2, 1), EOS), words[:, :-1]], 1)
    logits = model(inputs["src_tokens"], inputs["src_lengths"], previous)[0]
    logits[:, :, PAD] = -torch.inf
    for row, best in zip(words, logits.argmax(-1), strict=True):
        end = (row.eq(EOS).nonzero()[:1].sum() + 1) if row.eq(EOS).any() else len(row)
        assert row[:end].tolist() == best[:end].tolist()


def test_samples_are_logged_once_after_an_update(caplog: pytest.LogCaptureFixture) -> None:
    model = small_model(log_samples=2)
    with caplog.at_level(logging.INFO):
        model(**sample([9]))  # without any update, as an analysis does
        model.set_num_updates(41)
        model.train()(**sample([9]))
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
