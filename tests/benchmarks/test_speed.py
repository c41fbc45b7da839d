"""The benchmark: its measurements are right, and its tables follow from them."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from statistics import median

import measuring
import pytest
import regressions
import reporting
import speed
import systems
import torch
from torch import Tensor, nn

from ode_transformer.support.errors import UserError

SMALL = ["--dim", "16", "--ffn", "24", "--heads", "2", "--decoder-layers", "1", "--vocabulary", "40"]
SMALL += ["--sentences", "3", "--source-length", "7", "--target-length", "6"]


def small_setting(*options: str) -> measuring.Setting:
    parser = speed.build_parser()
    return speed.read_options(parser, parser.parse_args([*SMALL, *options]))[0]


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


def test_recomputed_steps_hold_less_and_their_peak_has_one_step() -> None:
    setting = small_setting()
    held, peak = {}, {}
    for name in ("rk4-6", "rk4-5", "rk4-6-recompute"):
        held[name], peak[name] = measured_system(name, setting).memory()
    step = held["rk4-6"] - held["rk4-5"]
    assert step > held["rk4-6"] / 10
    assert held["rk4-6-recompute"] < held["rk4-6"] - 5 * step
    assert step < peak["rk4-6-recompute"] < peak["rk4-6"] - 3 * step


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
    assert {parameter.dtype for parameter in measured.optimizer.fp32_params} == {torch.float32}
    assert any(not torch.equal(a, b) for a, b in zip(initial, measured.model.parameters(), strict=True))
    assert all(parameter.grad is None for parameter in measured.model.parameters())
    assert measured.loss().dtype == torch.float32


def test_all_systems_get_the_same_batch_with_padding() -> None:
    setting = small_setting("--sentences", "20")
    first, second = measured_system("fairseq-6", setting).batch, measured_system("rk4-6", setting).batch
    for key, tensor in first["net_input"].items():
        assert torch.equal(tensor, second["net_input"][key])
    assert first["target"].eq(1).any()
    assert first["ntokens"] == first["target"].ne(1).sum()


def test_tables_follow_from_the_measurements_in_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["fairseq-6", "euler-6", "rk4-6", "rk4-6-recompute", "rk4-5"]
    path = tmp_path / "speed.json"
    assert speed.main([*SMALL, "--systems", *names, "--json", str(path)]) == 0
    printed = capsys.readouterr().out
    record = json.loads(path.read_text(encoding="utf-8"))
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in printed.splitlines() if line.startswith("|")]
    first = {row[0]: row for row in rows if len(row) == 12}
    results = record["results"]
    assert list(results) == [name for name in systems.SYSTEMS if name in names]
    for name, result in results.items():
        measures = record["systems"][name]["measures"]
        assert {key for key in ("train", "decode") if key in result} == set(measures) - {"memory"}
        if "train" in measures:
            assert len(result["train"]) == len(result["update"]) == 5
            assert first[name][2] == f"{result['operations'] / 1e9:,.1f}"
            assert first[name][3].startswith(f"{1000 * median(result['train']):.0f} (")
            assert first[name][5] == f"{record['target_tokens'] / median(result['train']):,.1f}"
        if "decode" in measures:
            assert len(result["decode"]) == 5
            assert first[name][9] == f"{3 / median(result['decode']):,.1f}"
        assert first[name][6:8] == [f"{result[key] / 2**20:,.1f}" for key in ("held", "peak")]

    comparisons = {(row["measure"], row["name"]): row for row in record["comparisons"]}
    assert set(comparisons) == {
        ("train", "euler-6/fairseq-6"),
        ("train", "rk4-6-recompute/rk4-6"),
        ("decode", "euler-6/fairseq-6"),
        ("decode", "rk4-6/fairseq-6"),
        ("decode", "rk4-6/euler-6"),
        ("memory", "rk4-6-recompute/euler-6"),
    }
    euler, rk4 = results["euler-6"], results["rk4-6"]
    train = comparisons["train", "euler-6/fairseq-6"]
    for kind, key in (("wall_ratios", "train"), ("ratios", "train_cpu")):
        assert train[kind] == [a / b for a, b in zip(euler[key], results["fairseq-6"][key], strict=True)]
    assert train["met"] == (median(train["ratios"]) <= 0.9)
    decode = comparisons["decode", "rk4-6/euler-6"]
    for kind, key in (("wall_ratios", "decode"), ("ratios", "decode_cpu")):
        assert decode[kind] == [b / a for a, b in zip(rk4[key], euler[key], strict=True)]
    assert decode["met"] == (median(decode["ratios"]) >= 0.85)
    step = rk4["held"] - results["rk4-5"]["held"]
    assert f"holds {step / 2**20:.1f} MiB" in printed
    memory = comparisons["memory", "rk4-6-recompute/euler-6"]
    assert memory["ratios"] == [(results["rk4-6-recompute"]["peak"] - step) / euler["peak"]]
    second = {(row[1], row[0]): row for row in rows if len(row) == 5}
    assert second["training time", "euler-6/fairseq-6"][2].startswith(f"{train['median']:.3f} (")
    assert second["training time", "euler-6/fairseq-6"][4] == ("met" if train["met"] else "missed")
    assert second["training time", "rk4-6-recompute/rk4-6"][3:] == ["", ""]


def test_times_per_operation() -> None:
    (comparison,) = (c for c in systems.COMPARISONS if c.per_operation)
    results = {"train": [3.0, 6.0], "operations": 20}, {"train": [2.0, 2.0], "operations": 10}
    names = comparison.system, comparison.baseline
    record = speed.compare(comparison, dict(zip(names, results, strict=True)), cpu=False)
    assert record["ratios"] == [0.75, 1.5]
    assert record["met"] == (record["median"] <= 1.15)
    assert "training time per operation" in reporting.comparison_table([record])


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

    monkeypatch.setattr(speed, "MeasuredSystem", Recorder)
    results = speed.measure(small_setting(), ["euler-12", "fairseq-6"], ["train"], warmup=1, repetitions=5)
    assert order == ["transformer 6", "ode_transformer_euler 12"] * 6
    assert results["euler-12"]["train"] == [1.0] * 5  # without the warm-up


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--repetitions", "4"], "argument --repetitions: 4 is too few: medians are of at least 5"),
        (["--repetitions", "many"], "argument --repetitions: many is not a whole number from 1 on"),
        (["--systems", "no-such-system"], "argument --systems: invalid choice: 'no-such-system'"),
        (["--systems", "euler-6", "--comparisons", "rk2-6/euler-6"], "not allowed with argument"),
        (["--what", "train", "--comparisons", "rk2-6/euler-6"], "--what train does not measure what"),
        (["--what", "train", "--systems", "rk4-5"], "--what train means nothing for rk4-5"),
        (["--precision", "fp16"], "--precision fp16 needs --device cuda"),
        (["--precision", "bf16"], "--precision bf16 needs --device cuda"),
        (["--device", "cuda"], "--device cuda: this PyTorch finds no GPU"),
        (["--heads", "3"], "--heads 3 do not divide --dim 512"),
        (["--target-length", "1000"], "--target-length 1000 is too long"),
        (["--check", "no/file.json"], "--check no/file.json: no such file"),
        (["--check", __file__], "not a file of --json"),
        (
            ["--json", "no/such/folder/file.json"],
            "--json no/such/folder/file.json: not a file in an existing directory",
        ),
    ],
)
def test_contradictory_options_end_in_one_line(
    options: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit) as exit_info:
        speed.main(options)
    assert exit_info.value.code == 2
    usage, error = capsys.readouterr().err.splitlines()
    assert usage == "usage: speed.py [options]"
    assert message in error


def test_a_comparison_chooses_its_systems() -> None:
    parser = speed.build_parser()
    args = parser.parse_args(["--comparisons", "rk4-6-recompute/euler-6", "rk2-6/euler-6"])
    _, comparisons, names = speed.read_options(parser, args)
    assert [(comparison.measure, comparison.name) for comparison in comparisons] == [
        ("decode", "rk2-6/euler-6"),
        ("memory", "rk4-6-recompute/euler-6"),
    ]
    assert names == ["euler-6", "rk2-6", "rk4-6", "rk4-6-recompute", "rk4-5"]


def test_the_systems_of_a_comparison_have_its_measure() -> None:
    for comparison in systems.COMPARISONS:
        for name in comparison.required_systems:
            assert comparison.measure in systems.SYSTEMS[name].measures


@pytest.mark.slow
def test_the_script_runs() -> None:
    script = Path(speed.__file__)
    command = [sys.executable, str(script), *SMALL, "--systems", "euler-6", "--what", "decode"]
    process = subprocess.run(command, capture_output=True, text=True, cwd=script.parents[1])
    assert process.returncode == 0, process.stderr
    assert "| euler-6 |" in process.stdout
    assert str(script.parent) not in process.stdout


def test_presets_have_the_papers_size_and_batch_and_options_replace_them() -> None:
    parser = speed.build_parser()
    args = speed.parse_with_preset(parser, ["--preset", "table6-big", "--device", "cpu", "--precision", "fp32"])
    setting, _, names = speed.read_options(parser, args)
    assert (setting.dim, setting.ffn, setting.heads, setting.decoder_layers) == (1024, 4096, 16, 6)
    assert abs(setting.sentences * setting.source_length - 4096) < setting.source_length
    assert (setting.device, names) == ("cpu", ["euler-6", "euler-12", "euler-24", "rk2-6", "rk4-6"])
    args = speed.parse_with_preset(speed.build_parser(), ["--preset", "table6-base", *SMALL])
    assert (args.device, args.precision, args.sentences, args.dim) == ("cuda", "fp16", 3, 16)


def test_chosen_comparisons_replace_the_systems_of_a_preset() -> None:
    words = ["--preset", "table6-base", "--comparisons", "rk2-6/fairseq-6", "--device", "cpu", "--precision", "fp32"]
    parser = speed.build_parser()
    _, comparisons, names = speed.read_options(parser, speed.parse_with_preset(parser, words))
    assert {comparison.name for comparison in comparisons} == {"rk2-6/fairseq-6"}
    assert set(names) == {"rk2-6", "fairseq-6"}


def test_published_values_stand_beside_the_measured(capsys) -> None:
    words = [
        "--preset",
        "table6-big",
        *SMALL,
        "--device",
        "cpu",
        "--precision",
        "fp32",
        "--systems",
        "euler-6",
        "rk2-6",
    ]
    assert speed.main([*words, "--repetitions", "5"]) == 0
    tables = capsys.readouterr().out.split("\n\n")
    (table,) = [text for text in tables if "Residual-6" in text]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    assert [row[0] for row in rows] == ["euler-6", "rk2-6"]
    assert [row[3:5] + row[7:] for row in rows] == [
        ["98.7", "1.000", "13.2", "1.000"],
        ["93.9", "0.951", "15.1", "1.144"],
    ]
    assert rows[0][2] == rows[0][6] == "1.000"
    assert float(rows[1][6]) > 1


def recorded(path: Path, ratios: dict[tuple[str, str], list[float]], threads: int = 0, **setting: object) -> Path:
    rows = [{"measure": measure, "name": name, "ratios": values} for (measure, name), values in ratios.items()]
    ran = {"command": "python benchmarks/speed.py", "threads": str(threads or torch.get_num_threads())}
    record = {"ran": ran, "setting": setting, "comparisons": rows}
    path.write_text(json.dumps(record), encoding="utf-8")
    return path


SPEED, TIME, MEMORY = ("decode", "euler-6/fairseq-6"), ("train", "euler-6/fairseq-6"), ("memory", "rk2-6/fairseq-12")


@pytest.mark.parametrize(
    ("key", "then", "now", "worsened"),
    [
        (SPEED, [1.5, 1.51, 1.52, 1.53, 1.5], [1.3, 1.31, 1.32, 1.33, 1.3], True),
        (SPEED, [1.3, 1.31, 1.32, 1.33, 1.3], [1.5, 1.51, 1.52, 1.53, 1.5], False),  # it is faster
        (SPEED, [1.5, 1.51, 1.52, 1.53, 1.5], [1.1, 1.2, 1.4, 1.6, 1.7], False),  # lower by less than its noise
        (SPEED, [1.1, 1.2, 1.5, 1.6, 1.7], [1.3, 1.31, 1.32, 1.33, 1.3], False),
        (TIME, [0.9, 0.91, 0.92, 0.93, 0.9], [1.0, 1.01, 1.02, 1.03, 1.0], True),
        (TIME, [0.9, 0.91, 0.92, 0.93, 0.9], [0.9, 0.91, 0.92, 0.93, 0.9], False),
        (MEMORY, [1.04], [1.05], True),
        (MEMORY, [1.04], [1.04], False),
    ],
)
def test_a_ratio_worsens_by_more_than_the_noise_of_both(key, then, now, worsened: bool, tmp_path: Path) -> None:
    comparisons = [c for c in systems.COMPARISONS if (c.measure, c.name) == key]
    record = regressions.recorded_ratios(recorded(tmp_path / "record", {key: then}), {}, comparisons)
    changes = regressions.compare_with_record([{"measure": key[0], "name": key[1], "ratios": now}], record)
    assert [change.worsened for change in changes] == [worsened]
    assert regressions.change_table(changes).count("worsened") == worsened


def test_check_fails_where_a_ratio_has_worsened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = [*SMALL, "--systems", "euler-6", "fairseq-6", "--what", "decode"]
    setting = dataclasses.asdict(small_setting())
    for ratio, status in ((1000.0, 1), (0.001, 0)):
        path = recorded(tmp_path / "record", {SPEED: [ratio] * 5}, **setting)
        assert speed.main([*options, "--check", str(path)]) == status
        assert ("worsened" in capsys.readouterr().out) == bool(status)
    for key, dim, message in ((SPEED, 8, "measured with dim 8, not 16"), (MEMORY, 16, "has none of the comparisons")):
        path = recorded(tmp_path / "record", {key: [1.0]}, **setting | {"dim": dim})
        with pytest.raises(SystemExit, match="2"):
            speed.main([*options, "--check", str(path)])
        assert message in capsys.readouterr().err
    path = recorded(tmp_path / "record", {SPEED: [1.0]}, threads=64, **setting)
    with pytest.raises(SystemExit, match="2"):
        speed.main([*options, "--check", str(path)])
    assert f"measured with threads 64, not {torch.get_num_threads()}" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "no_onednn"), [("speed_tiny", False), ("speed_tiny_mkl", True)])
def test_the_published_files_tell_onednn_from_mkl(name: str, no_onednn: bool) -> None:
    path = Path(__file__).parents[2] / "docs" / "results" / f"{name}.json"
    assert regressions.recorded_ratios(path, {"no_onednn": no_onednn}, systems.COMPARISONS)
    with pytest.raises(UserError, match=f"measured with no onednn {no_onednn}, not {not no_onednn}"):
        regressions.recorded_ratios(path, {"no_onednn": not no_onednn}, systems.COMPARISONS)


def test_a_table_has_the_columns_that_were_measured() -> None:
    results = {"a": {"parameters": 2_100_000, "decode": [0.2, 0.1, 0.3]}, "b": {"parameters": 2_100_000}}
    assert reporting.system_table(results, sentences=24, target_tokens=600).splitlines() == [
        "| system | parameters | decoding, ms | sentences/s |",
        "|---|---:|---:|---:|",
        "| a | 2.1M | 200 (100–300) | 120.0 |",
        "| b | 2.1M | – | – |",
    ]
