"""Times of trainings follow from the speeds that were measured."""

import json
from pathlib import Path
from statistics import median

import pytest
from models_for_tests import outline

from ode_transformer.lab.recipes import workflow
from ode_transformer.lab.recipes.experiment import Experiment
from ode_transformer.lab.recipes.machine import Machine
from ode_transformer.lab.recipes.needs import describe_needs, gpu_speeds
from ode_transformer.lab.recipes.options import RunOptions
from ode_transformer.lab.recipes.recipe import load_recipe
from ode_transformer.models.model_from_options import SENTENCE_LENGTH, count_forward_operations


def test_speeds_are_those_of_the_measurements() -> None:
    results = Path(__file__).parents[3] / "docs" / "results"
    for entry, name in zip(gpu_speeds(), ("speed_recorded", "speed_recorded_16k", "speed_recorded_big"), strict=True):
        record = json.loads((results / f"{name}.json").read_text(encoding="utf-8"))
        euler = record["results"]["euler-6-recorded"]
        assert (record["setting"]["dim"], record["target_tokens"]) == (entry["width"], entry["tokens"])
        assert entry["speed"] == round(entry["tokens"] / median(euler["train"]))
        size = {512: "", 1024: "_big"}[entry["width"]]
        model = outline(f"ode_transformer_euler_wmt_en_de{size}", record["setting"]["vocabulary"])
        assert entry["operations"] == pytest.approx(count_forward_operations(model) / SENTENCE_LENGTH, rel=1e-4)


def test_hours_by_hand() -> None:
    """65,536 tokens x 50,000 updates on 8 GPUs, each of which makes 194,125 tokens a second of the measured model."""
    options = RunOptions(arch="ode_transformer_euler_wmt_en_de")
    recipe = load_recipe("wmt14_en_de", options)
    data = workflow.recipe_data(recipe, "wmt14_en_de", options)
    needs = describe_needs([[Experiment(recipe, data, Machine(8, "fp16"), options)]])
    assert "\ntime: about 0.6 hours on GPUs as fast as an H200" in needs
