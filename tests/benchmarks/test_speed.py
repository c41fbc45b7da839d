"""The benchmark: what it measures is right, and what it prints follows from what it measured."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from statistics import median

import measuring
import pytest
import reporting
import speed
import torch
from torch import Tensor, nn

SMALL = ["--dim", "16", "--ffn", "24", "--heads", "2", "--decoder-layers", "1", "--vocabulary", "40"]
SMALL += ["--sentences", "3", "--source-length", "7", "--target-length", "6"]


def small_setting(*options: str) -> measuring.Setting:
    parser = speed.build_parser()
    return speed.settle(parser, parser.parse_args([*SMALL, *options]))[0]


def subject(name: str, setting: measuring.Setting) -> measuring.Subject:
    system = speed.SYSTEMS[name]
    return measuring.Subject(system.arch, system.options, setting)


def test_storages_count_once_and_as_long_as_they_live() -> None:
    before = torch.ones(1000)
    with measuring.LiveTensors() as live:
        first = before + 1
        first.mul_(2)
        views = [before[5:], first.view(10, 100), *first.unbind()]
        assert live.bytes == 4000
        second = first * 2
        assert live.bytes == live.peak == 8000
        del first, views
        assert live.bytes == 4000
        del second
        assert (live.bytes, live.peak) == (0, 8000)


def test_memory_of_a_network_that_can_be_counted_by_hand() -> None:
    network = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    x = torch.randn(3, 8)

    def forward() -> Tensor:
        return network(x).sum()

    forward().backward()
    held, peak = measuring.memory_of(forward, "cpu")
    # ReLU keeps its result [3, 16], which the second layer keeps as well; and there is the sum itself.
    assert held == 4 * (3 * 16 + 1)
    # Before that, ReLU's input is there beside its result.
    assert peak >= 4 * 2 * 3 * 16


@pytest.mark.parametrize("name", ["fairseq-6", "rk4-6"])
def test_what_is_held_is_what_autograd_saves(name: str) -> None:
    measured = subject(name, small_setting())
    held, _ = measured.memory()
    given = [*measured.model.state_dict().values(), measured.batch["target"], *measured.batch["net_input"].values()]
    known = {tensor.untyped_storage().data_ptr() for tensor in [*given, *measured.model.buffers()]}
    saved: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = measured.loss()
    assert held == sum(saved.values()) + loss.nbytes


def test_recomputed_steps_hold_less_and_their_peak_has_one_step() -> None:
    setting = small_setting()
    held, peak = {}, {}
    for name in ("rk4-6", "rk4-5", "rk4-6-recompute"):
        held[name], peak[name] = subject(name, setting).memory()
    step = held["rk4-6"] - held["rk4-5"]
    assert step > held["rk4-6"] / 10
    assert held["rk4-6-recompute"] < held["rk4-6"] - 5 * step
    assert step < peak["rk4-6-recompute"] < peak["rk4-6"] - 3 * step


def test_operations_are_those_that_the_equations_need() -> None:
    """Two for each product of numbers, three passes: forward, and the two products behind each in backward."""
    setting = small_setting("--length-spread", "0")
    d, f, words = setting.dim, setting.ffn, setting.vocabulary
    source, target = 3 * 7, 3 * 6  # positions in all
    attentions = source * 4 * d * d + 2 * source * 7 * d  # of an encoder layer: projections, scores and values
    decoder = target * 4 * d * d + 2 * target * 6 * d + (2 * target + 2 * source) * d * d + 2 * target * 7 * d
    ends = target * d * words
    layer = {"euler-6-plain": 2 * d * f, "dlstm-6": 3 * d * f + 6 * d * d}  # beside attention, for each position
    for name, each in layer.items():
        forward = 6 * (attentions + source * each) + decoder + target * each + ends
        assert subject(name, setting).operations() == 3 * 2 * forward


def test_half_precision_updates_a_copy_in_float32() -> None:
    setting = dataclasses.replace(small_setting(), precision="bf16")  # on a CPU only here: it needs no GPU to work
    measured = subject("rk2-6", setting)
    before = [parameter.clone() for parameter in measured.model.parameters()]
    seconds = measured.train_step()
    assert 0 < seconds["update"] < seconds["train"]
    assert {parameter.dtype for parameter in measured.model.parameters()} == {torch.bfloat16}
    assert {parameter.dtype for parameter in measured.optimizer.fp32_params} == {torch.float32}
    assert any(not torch.equal(a, b) for a, b in zip(before, measured.model.parameters(), strict=True))
    assert all(parameter.grad is None for parameter in measured.model.parameters())
    assert measured.loss().dtype == torch.float32


def test_all_systems_get_the_same_batch_with_padding() -> None:
    setting = small_setting("--sentences", "20")
    first, second = subject("fairseq-6", setting).batch, subject("rk4-6", setting).batch
    for key, tensor in first["net_input"].items():
        assert torch.equal(tensor, second["net_input"][key])
    assert first["target"].eq(1).any()
    assert first["ntokens"] == first["target"].ne(1).sum()


def test_table_and_file_say_what_was_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    systems = ["fairseq-6", "euler-6", "rk4-6", "rk4-6-recompute", "rk4-5"]
    path = tmp_path / "speed.json"
    assert speed.main([*SMALL, "--systems", *systems, "--json", str(path)]) == 0
    printed = capsys.readouterr().out
    found = json.loads(path.read_text(encoding="utf-8"))
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in printed.splitlines() if line.startswith("|")]
    first = {row[0]: row for row in rows if len(row) == 10}
    results = found["results"]
    assert list(results) == [name for name in speed.SYSTEMS if name in systems]
    for name, result in results.items():
        measures = found["systems"][name]["measures"]
        assert {key for key in ("train", "decode") if key in result} == set(measures) - {"memory"}
        if "train" in measures:
            assert len(result["train"]) == len(result["update"]) == 5
            assert first[name][2] == f"{result['operations'] / 1e9:,.1f}"
            assert first[name][3].startswith(f"{1000 * median(result['train']):.0f} (")
            assert first[name][5] == f"{found['target_tokens'] / median(result['train']):,.1f}"
        if "decode" in measures:
            assert len(result["decode"]) == 5
            assert first[name][9] == f"{3 / median(result['decode']):,.1f}"
        assert first[name][6:8] == [f"{result[key] / 2**20:,.1f}" for key in ("held", "peak")]

    compared = {(row["measure"], row["name"]): row for row in found["comparisons"]}
    assert set(compared) == {
        ("train", "euler-6/fairseq-6"),
        ("train", "rk4-6-recompute/rk4-6"),
        ("decode", "euler-6/fairseq-6"),
        ("decode", "rk4-6/euler-6"),
        ("memory", "rk4-6-recompute/euler-6"),
    }
    euler, rk4 = results["euler-6"], results["rk4-6"]
    train = compared["train", "euler-6/fairseq-6"]
    assert train["ratios"] == [a / b for a, b in zip(euler["train"], results["fairseq-6"]["train"], strict=True)]
    assert train["met"] == (median(train["ratios"]) <= 1.1)
    decode = compared["decode", "rk4-6/euler-6"]
    assert decode["ratios"] == [b / a for a, b in zip(rk4["decode"], euler["decode"], strict=True)]
    assert decode["met"] == (median(decode["ratios"]) >= 0.85)
    step = rk4["held"] - results["rk4-5"]["held"]
    assert f"holds {step / 2**20:.1f} MiB" in printed
    memory = compared["memory", "rk4-6-recompute/euler-6"]
    assert memory["ratios"] == [(results["rk4-6-recompute"]["peak"] - step) / euler["peak"]]
    second = {(row[1], row[0]): row for row in rows if len(row) == 5}
    assert second["training time", "euler-6/fairseq-6"][2].startswith(f"{train['median']:.3f} (")
    assert second["training time", "euler-6/fairseq-6"][4] == ("met" if train["met"] else "missed")
    assert second["training time", "rk4-6-recompute/rk4-6"][3:] == ["", ""]


def test_times_per_operation() -> None:
    (comparison,) = (c for c in speed.COMPARISONS if c.per_operation)
    results = {"train": [3.0, 6.0], "operations": 20}, {"train": [2.0, 2.0], "operations": 10}
    found = speed.compare(comparison, dict(zip((comparison.system, comparison.baseline), results, strict=True)))
    assert found["ratios"] == [0.75, 1.5]
    assert found["met"] == (found["median"] <= 1.15)
    assert "training time per operation" in reporting.comparison_table([found])


def test_systems_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    class Recorder:
        parameters = 0

        def __init__(self, arch: str, options: dict, *_: object) -> None:
            self.name = f"{arch} {options['encoder_layers']}"

        def operations(self) -> int:
            return 7

        def train_step(self) -> dict[str, float]:
            order.append(self.name)
            return {"train": 1.0}

    monkeypatch.setattr(speed, "Subject", Recorder)
    results = speed.measure(small_setting(), ["euler-12", "fairseq-6"], ["train"], warmup=1, repetitions=5)
    assert order == ["transformer 6", "ode_transformer_euler 12"] * 6
    assert results["euler-12"]["train"] == [1.0] * 5  # without the warm-up


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--repetitions", "4"], "argument --repetitions: 4 is too few: medians are of at least 5"),
        (["--repetitions", "many"], "argument --repetitions: many is not a whole number from 1 on"),
        (["--systems", "euler-7"], "argument --systems: invalid choice: 'euler-7'"),
        (["--systems", "euler-6", "--comparisons", "rk2-6/euler-6"], "not allowed with argument"),
        (["--what", "train", "--comparisons", "rk2-6/euler-6"], "--what train does not measure what"),
        (["--what", "train", "--systems", "rk4-5"], "--what train means nothing for rk4-5"),
        (["--precision", "fp16"], "--precision fp16 needs --device cuda"),
        (["--precision", "bf16"], "--precision bf16 needs --device cuda"),
        (["--device", "cuda"], "--device cuda: this PyTorch finds no GPU"),
        (["--heads", "3"], "--heads 3 do not divide --dim 512"),
        (["--target-length", "1000"], "--target-length 1000 is too long"),
        (["--json", "no/such/folder/file.json"], "--json no/such/folder/file.json: no/such/folder is not a folder"),
    ],
)
def test_what_makes_no_sense_ends_in_one_line(
    options: list[str], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit) as ended:
        speed.main(options)
    assert ended.value.code == 2
    usage, error = capsys.readouterr().err.splitlines()
    assert usage == "usage: speed.py [options]"
    assert words in error


def test_a_comparison_chooses_its_systems() -> None:
    parser = speed.build_parser()
    args = parser.parse_args(["--comparisons", "rk4-6-recompute/euler-6", "rk2-6/euler-6"])
    _, comparisons, systems = speed.settle(parser, args)
    assert [(one.measure, one.name) for one in comparisons] == [
        ("decode", "rk2-6/euler-6"),
        ("memory", "rk4-6-recompute/euler-6"),
    ]
    assert systems == ["euler-6", "rk2-6", "rk4-6", "rk4-6-recompute", "rk4-5"]


def test_every_comparison_has_systems_that_are_measured_so() -> None:
    for comparison in speed.COMPARISONS:
        for name in comparison.needs:
            assert comparison.measure in speed.SYSTEMS[name].measures


@pytest.mark.slow
def test_it_runs_as_a_script() -> None:
    script = Path(speed.__file__)
    command = [sys.executable, str(script), *SMALL, "--systems", "euler-6", "--what", "decode"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=script.parents[1])
    assert done.returncode == 0, done.stderr
    assert "| euler-6 |" in done.stdout
    assert str(script.parent) not in done.stdout
