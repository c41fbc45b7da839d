"""The benchmark: its measurements are right, and its tables follow from them."""

import dataclasses
import json
from pathlib import Path
from statistics import median

import measuring
import pytest
import speed
import systems
import torch
from torch import Tensor

SMALL = ["--dim", "16", "--ffn", "24", "--heads", "2", "--decoder-layers", "1", "--vocabulary", "40"]
SMALL += ["--sentences", "3", "--source-length", "7", "--target-length", "6"]


def small_setting(*options: str) -> measuring.Setting:
    args = speed.read_options([*SMALL, *options])
    return measuring.Setting(
        **{field.name: getattr(args, field.name) for field in dataclasses.fields(measuring.Setting)}
    )


def measured_system(name: str, setting: measuring.Setting, fused: bool = False) -> measuring.MeasuredSystem:
    system = systems.SYSTEMS[name]
    return measuring.MeasuredSystem(system.arch, system.options, setting, fused)


def test_storages_count_once_and_as_long_as_they_live() -> None:
    existing = torch.ones(1000)
    with measuring.LiveTensors() as live:
        first = existing + 1
        first.mul_(2)
        views = [existing[5:], first.view(10, 100), *first.unbind()]
        assert live.bytes == 4000
        second = first * 2
        assert live.bytes == live.peak == 8000
        del first, views
        assert live.bytes == 4000
        del second
        assert (live.bytes, live.peak) == (0, 8000)


@pytest.mark.parametrize("name", ["fairseq-6", "euler-6-plain"])  # a layer history keeps its states itself
def test_memory_held_for_backward_is_that_of_saved_tensors(name: str) -> None:
    measured = measured_system(name, small_setting())
    held, _ = measured.memory()
    existing = [*measured.model.state_dict().values(), measured.batch["target"], *measured.batch["net_input"].values()]
    existing_storages = {tensor.untyped_storage().data_ptr() for tensor in [*existing, *measured.model.buffers()]}
    saved: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in existing_storages:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = measured.loss()
    assert held == sum(saved.values()) + loss.nbytes


def test_operations_are_those_of_the_equations() -> None:
    """Two for each product of numbers; one pass forward, and two backward, by the input and by the weights."""
    setting = small_setting("--length-spread", "0")
    d, f, vocabulary = setting.dim, setting.ffn, setting.vocabulary
    source, target = 3 * 7, 3 * 6  # positions of all sentences
    attentions = source * 4 * d * d + 2 * source * 7 * d  # of an encoder layer: projections, scores and values
    decoder = target * 4 * d * d + 2 * target * 6 * d + (2 * target + 2 * source) * d * d + 2 * target * 7 * d
    projection = target * d * vocabulary
    layer = {"euler-6-plain": 2 * d * f, "dlstm-6": 3 * d * f + 6 * d * d}  # beside attention, for each position
    for name, each in layer.items():
        forward = 6 * (attentions + source * each) + decoder + target * each + projection
        assert measured_system(name, setting).operations() == 3 * 2 * forward


@pytest.mark.parametrize("fused", [False, True])
def test_half_precision_updates_a_copy_in_float32(fused: bool) -> None:
    setting = dataclasses.replace(small_setting(), precision="bf16")  # on a CPU only here: it needs no GPU to work
    measured = measured_system("rk2-6", setting, fused)
    initial = [parameter.clone() for parameter in measured.model.parameters()]
    seconds = measured.train_step()
    assert 0 < seconds["update"] < seconds["train"]
    assert {parameter.dtype for parameter in measured.model.parameters()} == {torch.bfloat16}
    (group,) = measured.optimizer.optimizer.param_groups
    assert {parameter.dtype for parameter in group["params"]} == {torch.float32}
    assert any(not torch.equal(a, b) for a, b in zip(initial, measured.model.parameters(), strict=True))
    assert all(parameter.grad is None for parameter in measured.model.parameters())
    assert measured.loss().dtype == torch.float32


def test_tables_follow_from_the_measurements_in_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["euler-6", "rk4-6", "rk4-6-recompute"]
    path = tmp_path / "speed.json"
    assert speed.main([*SMALL, "--systems", *names, "--repetitions", "2", "--json", str(path)]) == 0
    printed = capsys.readouterr().out
    record = json.loads(path.read_text(encoding="utf-8"))
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in printed.splitlines() if line.startswith("|")]
    first = {row[0]: row for row in rows if len(row) == 14}
    results = record["results"]
    assert list(results) == names
    for name, result in results.items():
        assert len(result["train"]) == len(result["update"]) == len(result.get("decode", range(2))) == 2
        assert first[name][2] == f"{result['operations'] / 1e9:,.1f}"
        assert first[name][3].startswith(f"{1000 * median(result['train']):.0f} (")
        assert first[name][5] == f"{record['target_tokens'] / median(result['train']):,.1f}"
        assert first[name][6] == f"{result['operations'] / median(result['train']) / 1e12:,.1f}"
        assert first[name][7:9] == [f"{result[key] / 2**20:,.1f}" for key in ("held", "peak")]
    assert results["rk4-6-recompute"]["held"] < results["rk4-6"]["held"] / 2
    assert "rk4-6/euler-6" in {row["name"] for row in record["comparisons"]}


@pytest.mark.parametrize("quantization", ["float32", "int8"])
def test_ctranslate2_decodes_hypotheses_of_the_fixed_length(quantization: str) -> None:
    options = systems.SYSTEMS["ones-6-ctranslate2"].options | {"encoder_layers": 1}
    system = measuring.CTranslate2System("ode_transformer_ones", options, small_setting(), quantization)
    system.prepare_to_decode()
    assert system.decode()["decode"] > 0  # which asserts the length
