"""What models show of their attention, the usual ones and those with axes of their own."""

import torch
from batches import pair_sample
from plain_models import small_plain_model

from ode_transformer.decoding.attention_maps import attention_maps


def test_an_encoder_decoder_model_shows_its_attention_over_the_source() -> None:
    (name, found), *others = attention_maps(small_plain_model(), pair_sample([6], [4])).items()
    assert name == "attention over the source"
    assert not others
    assert found.axes == ("target", "source")
    assert found.weights.shape == (4, 6)
    torch.testing.assert_close(found.weights.sum(-1), torch.ones(4))


def test_a_grid_shows_both_axes_and_its_reduction() -> None:
    """Attention over the source is of a target position and the columns of its line; over the target, of a column."""
    for options in ({}, {"decoder_ode_scheme": "rk2", "max_joint_cells": 5}):
        model = small_plain_model(arch="reformer", **options)
        found = attention_maps(model, pair_sample([6], [4]))
        assert {name: tuple(shown.weights.shape) for name, shown in found.items()} == {
            "attention over the source": (4, 6, 6),
            "attention over the target": (6, 4, 4),
            "reduction": (4, 6),
        }
        assert found["attention over the source"].axes == ("target", "source", "source")
        for shown in found.values():
            torch.testing.assert_close(shown.weights.sum(-1), torch.ones(shown.weights.shape[:-1]))
        assert (found["attention over the target"].weights.triu(1) == 0).all()
