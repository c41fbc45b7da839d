"""Kernels of sub-layers and attention compute their formulas, with the same mask forward and backward, interpreted."""

from typing import Any

import interpreted_attention
import interpreted_sublayers
import pytest
import torch
from interpreted_sublayers import CASES, assert_formula
from interpreter import interpreted
from models_for_tests import small_model

from ode_transformer.nn import AttentionMask, MultiheadAttention
from ode_transformer.speed import attention, sublayers


def test_results_and_gradients_are_those_of_the_formula_with_the_same_mask() -> None:
    for case, outcome in zip(CASES, interpreted(interpreted_sublayers.functions, CASES), strict=True):
        assert_formula(case, outcome)


def test_an_increment_that_is_computed_again_has_the_same_mask() -> None:
    [gradients] = interpreted(interpreted_sublayers.checkpointed, [()])
    torch.testing.assert_close(gradients["again"], gradients["kept"], rtol=0, atol=0)


def test_attention_and_its_gradients_are_those_of_the_formula_with_the_same_mask() -> None:
    outcomes = interpreted(interpreted_attention.outcome, [(case,) for case in interpreted_attention.CASES])
    for case, outcome in zip(interpreted_attention.CASES, outcomes, strict=True):
        interpreted_attention.assert_formula(case, outcome)


def test_longer_texts_and_other_kinds_of_attention_are_computed_by_the_formula() -> None:
    module = MultiheadAttention(16, 2, encoder_dim=16).eval()
    x, source = torch.randn(2, 3, 16), torch.randn(2, attention.LONGEST + 1, 16)
    weights: list[torch.Tensor] = []
    for text, more in ((source, {}), (source[:, :5], {"weights": weights})):
        expected = module(x, AttentionMask(), text)
        torch.testing.assert_close(attention.attend(module, x, AttentionMask(), text, **more), expected)
    assert weights


@pytest.mark.slow
def test_trainings_differ_by_their_masks_alone() -> None:
    still, drawn = interpreted(interpreted_sublayers.training, [(True, 0.0), (True, 0.2)])
    torch.testing.assert_close(still, interpreted_sublayers.training(False, 0.0), rtol=1e-5, atol=1e-6)
    unrecorded, *replays = drawn
    assert len({float(loss) for loss, _ in (unrecorded, *replays)}) == 3  # each has other masks
    torch.testing.assert_close(replays[2], replays[1], rtol=0, atol=0)  # as when a training is resumed


@pytest.mark.parametrize(
    ("options", "replaced"),
    [
        ({}, {"increment": 4, "forward": 10}),
        ({"arch": "macaron"}, {}),
        ({"arch": "dlstm", "max_relative_positions": 0}, {}),
    ],
)
def test_layers_of_other_kinds_keep_their_methods(options: dict[str, Any], replaced: dict[str, int]) -> None:
    methods = [name for module in small_model(**options).modules() for _, name, _ in sublayers.faster_methods(module)]
    assert {name: methods.count(name) for name in methods} == replaced
