"""Disk and time of trainings, estimated: beside counted operations, and by hand."""

import re

import pytest
from models_for_tests import build_model

from ode_transformer.lab.recipes import workflow
from ode_transformer.lab.recipes.experiment import Experiment
from ode_transformer.lab.recipes.machine import Machine
from ode_transformer.lab.recipes.needs import describe_needs, operations_of_token
from ode_transformer.lab.recipes.options import RunOptions
from ode_transformer.models.model_from_options import SENTENCE_LENGTH, count_forward_operations


@pytest.mark.parametrize(
    "arch",
    ["ode_transformer_rk4_tiny", "ode_transformer_lm_rk2", "reformer_fast_tiny", "dlstm_tiny", "transformer_tiny"],
)
def test_operations_of_a_token_are_nearly_those_that_are_counted(arch: str) -> None:
    model = build_model(arch, 500)
    assert 0.7 < SENTENCE_LENGTH * operations_of_token(model) / count_forward_operations(model) < 1


def needs(arch: str, seeds: int, machine: Machine, minutes: float | None = None) -> str:
    options = RunOptions(arch=arch, minutes=minutes)
    recipe = workflow.load_recipe("wmt14_en_de", options)
    data = workflow.recipe_data(recipe, "wmt14_en_de", options)
    return describe_needs([[Experiment(recipe, data, machine, options, seed) for seed in range(seeds)]])


def test_disk_and_hours_by_hand() -> None:
    """Of 61.6 million parameters: 7 checkpoints with 10 bytes each, and 4 averaged; the deep big model has 286.9."""
    base = needs("ode_transformer_rk2_wmt_en_de", 1, Machine(8, "fp16"))
    assert base.startswith("disk: about 4.6 GB of checkpoints;")
    assert "--model-only" not in base
    # 6 x (2 x 18.9 + 25.2 + 17.4 million) x 65,536 tokens x 50,000 updates, 8 x 33e12 in a second
    assert "\ntime: about 1.7 hours if a GPU is as fast as an H100" in base
    big = needs("ode_transformer_rk2_wmt_en_de_big_deep", 3, Machine(8, "fp16"))
    assert re.match(r"disk: about 64 GB .* with --model-only about 24 GB\ntime", big)
    assert "time" not in needs("ode_transformer_rk2_wmt_en_de", 1, Machine(0))
    assert needs("ode_transformer_rk2_wmt_en_de", 3, Machine(0), minutes=30).endswith("time: about 1.5 hours")
