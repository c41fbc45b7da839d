"""What models show of their attention, the usual ones and those with axes of their own."""

import torch
from models_for_tests import batch, small_model, teacher_forced

from ode_transformer.decoding.attention_maps import attention_maps


def sample() -> dict:
    source, target = batch([6], 1), batch([4], 2)
    lengths = torch.tensor([6])
    inputs = {"src_tokens": source, "src_lengths": lengths, "prev_output_tokens": teacher_forced(target)}
    return {"net_input": inputs, "target": target}


def test_an_encoder_decoder_model_shows_its_attention_over_the_source() -> None:
    (name, found), *others = attention_maps(small_model(), sample()).items()
    assert name == "attention over the source"
    assert not others
    assert found.axes == ("target", "source")
    assert found.weights.shape == (4, 6)
    torch.testing.assert_close(found.weights.sum(-1), torch.ones(4))
    axes, weights = found.matrix(3)
    assert axes == ("target", "source")
    assert weights is found.weights


class Grid(torch.nn.Linear):
    """Shows attention over the source for each target token."""

    def attention_maps(self, src_tokens, src_lengths, prev_output_tokens):
        weights = torch.arange(4 * 6 * 6.0).view(1, 4, 6, 6)
        return {"source attention": (("target", "source", "source"), weights)}


def test_a_model_may_show_maps_of_its_own() -> None:
    found = attention_maps(Grid(1, 1), sample())["source attention"]
    assert found.weights.shape == (4, 6, 6)
    axes, weights = found.matrix(2)
    assert axes == ("target", "source")
    for target in range(4):
        for source in range(6):
            assert weights[target, source] == 36 * target + 6 * 2 + source


def test_a_grid_shows_both_axes_and_its_reduction() -> None:
    """Attention over the source is of a target position and the columns of its line; over the target, of a column."""
    for options in ({}, {"decoder_ode_scheme": "rk2", "max_joint_cells": 5}):
        model = small_model(arch="reformer", **options).eval()
        found = attention_maps(model, sample())
        assert {name: tuple(shown.weights.shape) for name, shown in found.items()} == {
            "attention over the source": (4, 6, 6),
            "attention over the target": (6, 4, 4),
            "reduction": (4, 6),
        }
        for shown in found.values():
            torch.testing.assert_close(shown.weights.sum(-1), torch.ones(shown.weights.shape[:-1]))
        assert (found["attention over the target"].weights.triu(1) == 0).all()
        assert model.decoder.observers == []


def test_maps_are_those_of_the_last_layer() -> None:
    model = small_model(arch="reformer")
    seen = []
    attention = model.decoder.layers[-1]["self_attn_source"].function
    probabilities = attention._probabilities
    attention._probabilities = lambda *given: (seen.append(probabilities(*given)), seen[-1])[1]
    found = attention_maps(model, sample())["attention over the source"]
    torch.testing.assert_close(found.weights, seen[-1][0].mean(dim=1).float())
