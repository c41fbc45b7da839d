"""Disk and time of trainings, estimated: beside counted operations, and by hand."""

import pytest
from models_for_tests import build_model

from ode_transformer.lab.recipes.needs import operations_of_token
from ode_transformer.models.model_from_options import SENTENCE_LENGTH, count_forward_operations


@pytest.mark.parametrize(
    "arch",
    ["ode_transformer_rk4_tiny", "ode_transformer_lm_rk2", "reformer_fast_tiny", "dlstm_tiny", "transformer_tiny"],
)
def test_operations_of_a_token_are_nearly_those_that_are_counted(arch: str) -> None:
    model = build_model(arch, 500)
    assert 0.7 < SENTENCE_LENGTH * operations_of_token(model) / count_forward_operations(model) < 1
