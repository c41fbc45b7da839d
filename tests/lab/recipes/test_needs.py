"""Times of trainings follow from the speeds that were measured."""

import json
from pathlib import Path
from statistics import median
from types import SimpleNamespace

import pytest
from models_for_tests import outline

from ode_transformer.decoding.operations import SENTENCE_LENGTH, count_forward_operations
from ode_transformer.lab.recipes import workflow
from ode_transformer.lab.recipes.experiment import Experiment
from ode_transformer.lab.recipes.machine import Machine
from ode_transformer.lab.recipes.needs import describe_duration, describe_needs, gpu_speeds, processor_hours
from ode_transformer.lab.recipes.options import RunOptions
from ode_transformer.lab.recipes.recipe import load_recipe


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


def test_hours_of_a_processor_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of half a second are measured up to the size of a pass, those of two seconds up to 64 tokens."""
    options = RunOptions(arch="ode_transformer_rk2_tiny", train_flags=("--max-update", "36"))
    recipe = load_recipe("quickstart_text", options)
    data = workflow.recipe_data(recipe, "quickstart_text", options)
    experiment = Experiment(recipe, data, Machine(0), options)
    assert (experiment.batch.tokens, experiment.batch.max_tokens) == (500, 500)
    for seconds, tokens in ((0.5, 500), (2, 60)):
        clock = iter(seconds * step for step in range(100))
        monkeypatch.setattr("ode_transformer.lab.recipes.needs.time", SimpleNamespace(perf_counter=clock.__next__))
        assert processor_hours(experiment, [100], 20) == pytest.approx(500 * 36 / tokens * seconds / 3600)
    assert [describe_duration(hours) for hours in (0.001, 0.4, 5, 60)] == [
        "2 minutes",
        "24 minutes",
        "5 hours",
        "2 days",
    ]


def test_hours_by_hand() -> None:
    """65,536 tokens x 50,000 updates on 8 GPUs, each of which makes 194,125 tokens a second of the measured model."""
    options = RunOptions(arch="ode_transformer_euler_wmt_en_de")
    recipe = load_recipe("wmt14_en_de", options)
    data = workflow.recipe_data(recipe, "wmt14_en_de", options)
    needs = describe_needs([[Experiment(recipe, data, Machine(8, "fp16"), options)]])
    assert "\ntime: about 0.6 hours on GPUs as fast as an H200" in needs


def test_memory_of_the_pairs_by_hand(tmp_path: Path) -> None:
    """190 bytes for each published pair in each process of a machine, or for each that was prepared."""
    options = RunOptions(arch="ode_transformer_euler_wmt_en_de", output=tmp_path)
    recipe = load_recipe("wmt14_en_fr", options)
    data = workflow.recipe_data(recipe, "wmt14_en_fr", options)

    def memory(machine: Machine) -> list[str]:
        needs = describe_needs([[Experiment(recipe, data, machine, options)]])
        return [line for line in needs.splitlines() if line.startswith("memory")]

    many = Machine(8, "fp16", nodes=2)
    each = ", which each of 8 processes keeps"
    assert memory(many) == [f"memory: about 54 GB for the order of 35,700,000 pairs{each}"]
    assert memory(Machine(0)) == ["memory: about 6.8 GB for the order of 35,700,000 pairs"]
    data.folder.mkdir()
    (data.folder / "counts.json").write_text('{"train": 1000000}')
    assert memory(many) == [f"memory: about 1.5 GB for the order of 1,000,000 pairs{each}"]
    assert memory(Machine(1, "fp16")) == []
