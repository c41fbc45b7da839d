"""``ode-transformer probe-linear``: results, resuming after an interruption, and refusals."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import sentencepiece
import torch
from checkpoint_for_tests import MAX_POSITIONS, binarise
from commands_for_tests import PAIRS
from test_layer_replacement import PRINTED

from ode_transformer.analysis.linear_probe import layer_fits, layer_probe
from ode_transformer.analysis.linear_probe.layer_replacement import Distillation
from ode_transformer.analysis.linear_probe.probe_linear import table
from ode_transformer.checkpoints.reading import load_checkpoint, save_checkpoint
from ode_transformer.cli.command import main
from ode_transformer.metrics.metric import Settings
from ode_transformer.metrics.registry import METRICS
from ode_transformer.nn.observers import LayerId
from ode_transformer.support import console
from ode_transformer.support.files import lock_directory
from ode_transformer.support.lines import read_lines

# Batches of few tokens, so that a pass over the training data has several.
SHORT = ("--cpu", "--remove-bpe", "sentencepiece", "--max-len-b", "12", "--beam", "2", "--max-tokens", "150")
NLL = ("--objective", "nll", "--updates", "6", "--lr", "0.01", "--stack", "decoder", "--layer", "2")


@pytest.fixture(scope="module")
def prepared(untrained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model's folder with training and test data; the targets are hypotheses of a kind, so that BLEU is not 0."""
    folder = shutil.copytree(untrained.parent, tmp_path_factory.mktemp("probe") / "model")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.bpe.model"))
    pairs = [tuple(" ".join(pieces.encode(side, out_type=str)) for side in pair) for pair in PAIRS]
    binarise(folder, "train", pairs[:40])
    binarise(folder, "test", pairs[40:])
    return folder


@pytest.fixture
def folder(prepared: Path, tmp_path: Path) -> Path:
    return shutil.copytree(prepared, tmp_path / "model")


def command(folder: Path, *options: object, output: str = "out") -> int:
    words = [folder / "model.pt", "--data", folder, "--output", folder / output, *SHORT, "--metric", "chrf", *options]
    return main(["analyse", "linear-probe", *map(str, words)])


def results(folder: Path, output: str = "out") -> dict:
    return json.loads((folder / output / "results.json").read_text())


def test_all_layers_in_turn(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(folder) == 0
    out, err = capsys.readouterr()
    assert (folder / "out" / "table.md").read_text() == out
    head, _, none, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in out.splitlines()]
    assert head == ["Layer", "Encoder chrF2", "Δ (%)", "Decoder chrF2", "Δ (%)"]
    found = results(folder)
    full = found["full"]["value"]
    assert none == ["None", f"{full:.2f}", "0.00", f"{full:.2f}", "0.00"]
    assert [row[0] for row in rows] == ["1", "2"]
    assert [(entry["stack"], entry["number"]) for entry in found["layers"]] == [
        *(("encoder", 1), ("encoder", 2), ("decoder", 1), ("decoder", 2))
    ]
    for entry in found["layers"]:
        column = 1 if entry["stack"] == "encoder" else 3
        score = entry["score"]["value"]
        assert rows[entry["number"] - 1][column : column + 2] == [f"{score:.2f}", f"{100 * (score / full - 1):.2f}"]
        assert 0 < entry["r_squared"] < 1
        assert entry["rank"] == 32
    positions = {entry["stack"]: entry["positions"] for entry in found["layers"]}
    assert 300 < positions["encoder"] < positions["decoder"] + 400
    assert len({entry["score"]["value"] for entry in found["layers"]} | {full}) > 1
    assert found["command"].startswith("ode-transformer analyse linear-probe ")
    assert (folder / "out" / "bars.png").read_bytes().startswith(b"\x89PNG")
    assert read_lines(folder / "out" / "references.txt") == [target for _, target in PAIRS[40:]]
    assert "batches: " in err
    assert "R² " in err


def test_one_layer_of_one_stack_or_of_both(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(folder, "--stack", "encoder", "--layer", 2) == 0
    one = capsys.readouterr().out.splitlines()
    assert [line.split("|")[1].strip() for line in one[2:]] == ["None", "2"]
    assert "Decoder" not in one[0]
    assert command(folder, "--layer", 2, output="both") == 0
    both = capsys.readouterr().out.splitlines()
    assert both[3].startswith(one[3].removesuffix("|"))


@pytest.mark.parametrize(("metric", "label"), [("bleu", "BLEU"), ("per", "PER"), ("wer", "WER")])
def test_other_metrics_score_the_same_translations(
    folder: Path, metric: str, label: str, capsys: pytest.CaptureFixture[str]
) -> None:
    layer = ("--stack", "encoder", "--layer", 1)
    assert command(folder, *layer) == 0
    capsys.readouterr()
    assert command(folder, *layer, "--metric", metric) == 0
    out, err = capsys.readouterr()
    assert f"| Encoder {label} |" in out
    assert err.count("already done") == 3
    texts = [read_lines(folder / "out" / name) for name in ("hypotheses/none.txt", "references.txt")]
    assert results(folder)["full"]["value"] == METRICS[metric](texts[0], Settings(texts[1]))[0].value


def test_finished_jobs_are_skipped(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(folder, "--stack", "encoder", "--layer", 2) == 0
    assert command(folder) == 0
    printed, err = capsys.readouterr()
    assert err.count("already done") == 3  # the whole model's translations, this layer's fit and translations
    assert command(folder) == 0
    again, err = capsys.readouterr()
    assert again in printed
    assert err.count("already done") == 9
    assert "sums over" not in err


def test_another_request_or_other_files_are_never_mixed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each change redoes what depends on it, and gives what it gives in an empty folder."""
    layer = ("--stack", "encoder", "--layer", 1)

    def change_the_model() -> None:
        state = load_checkpoint(folder / "model.pt")
        for tensor in state["model"].values():
            if tensor.is_floating_point():
                tensor.mul_(1.01)
        save_checkpoint(state, folder / "model.pt")

    assert command(folder, *layer) == 0
    for number, (change, more, done) in enumerate(
        [
            (lambda: None, ("--train-sentences", 30), 1),
            (lambda: None, ("--beam", 3), 0),
            (lambda: None, ("--split", "train"), 0),
            (change_the_model, (), 0),
        ]
    ):
        change()
        capsys.readouterr()
        assert command(folder, *layer, *more) == 0
        here, err = capsys.readouterr()
        assert err.count("decode encoder layer 1, least-squares: already done") == 0
        assert err.count("decode the whole model: already done") == done
        assert command(folder, *layer, *more, output=f"new{number}") == 0
        assert capsys.readouterr().out == here
        assert results(folder)["layers"] == results(folder, f"new{number}")["layers"]


def test_the_folder_is_locked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with lock_directory(folder / "out", "probing"):
        assert command(folder) == 2
    assert "out: another process is probing here" in capsys.readouterr().err


class Stop(BaseException):
    """As a signal would end the process."""


def stop(owner: object, name: str, call: int, *words: object) -> None:
    """Runs the command, which ends in the function ``name`` of a module or class after so many calls of it."""
    function = getattr(owner, name)
    calls = iter(range(call))

    def limited(*args, **kwargs):
        if next(calls, None) is None:
            raise Stop
        return function(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, limited)
        with pytest.raises(Stop):
            command(*words)


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_an_interrupted_pass_goes_on_and_gives_the_same_bits(
    folder: Path, batch: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(folder, output="whole") == 0
    monkeypatch.setattr(console, "SAVE_INTERVAL", 0.0)
    stop(layer_fits, "batch_sums", batch, folder)
    assert (folder / "out" / "solutions" / "sums.pt").exists()
    capsys.readouterr()
    assert command(folder) == 0
    assert f"goes on at batch {batch + 1}" in capsys.readouterr().err
    assert_the_same(folder)


def test_an_interrupted_pass_of_another_request_is_not_resumed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stop(layer_fits, "save_fit", 0, folder, "--train-sentences", 30)
    assert (folder / "out" / "solutions" / "sums.pt").exists()
    capsys.readouterr()
    assert command(folder) == 0
    assert "goes on" not in capsys.readouterr().err
    assert command(folder, output="whole") == 0
    assert_the_same(folder)


def test_one_layer_of_an_interrupted_pass_over_all_is_not_the_end_of_the_others(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stop(layer_fits, "save_fit", 0, folder)
    assert command(folder, "--stack", "decoder", "--layer", 1) == 0
    capsys.readouterr()
    assert command(folder) == 0
    assert "sums over" not in capsys.readouterr().err


def test_an_interruption_between_layers(folder: Path) -> None:
    assert command(folder, output="whole") == 0
    for call in (1, 2):
        stop(layer_fits, "save_fit", call, folder)
    stop(layer_probe, "translate_split", 2, folder)
    assert command(folder) == 0
    assert_the_same(folder)


@pytest.mark.parametrize("update", [1, 3, 5])
def test_an_interrupted_distillation_goes_on_and_gives_the_same_bits(
    folder: Path, update: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(folder, *NLL, output="whole") == 0
    monkeypatch.setattr(console, "SAVE_INTERVAL", 0.0)
    stop(Distillation, "step", update, folder, *NLL)
    capsys.readouterr()
    assert command(folder, *NLL) == 0
    assert f"goes on after update {update}" in capsys.readouterr().err
    assert_the_same(folder)
    start, trained = (
        load_checkpoint(folder / "out" / "solutions" / f"decoder-2.{objective}.pt")["model"]["weight"]
        for objective in ("least-squares", "nll")
    )
    assert not torch.equal(start.float(), trained)
    stop(Distillation, "step", 2, folder, *NLL, "--seed", 2)
    capsys.readouterr()
    assert command(folder, *NLL, "--seed", 3) == 0
    assert "goes on after" not in capsys.readouterr().err


def assert_the_same(folder: Path) -> None:
    whole, out = folder / "whole", folder / "out"
    solutions = sorted(path.name for path in (whole / "solutions").iterdir())
    assert sorted(path.name for path in (out / "solutions").iterdir()) == solutions
    for name in solutions:
        expected, found = (load_checkpoint(part / "solutions" / name) for part in (whole, out))
        for key, tensor in expected.pop("model").items():
            assert torch.equal(found["model"][key], tensor)
        assert {key: found[key] for key in expected} == expected
    assert results(folder)["layers"] == results(folder, "whole")["layers"]


def test_the_table_of_the_paper() -> None:
    """Tables 6 and 7, from their scores alone."""
    for full, (encoder, decoder) in PRINTED.items():
        scores = {
            LayerId(stack, number): score
            for stack, rows in (("encoder", encoder), ("decoder", decoder))
            for number, (score, _) in enumerate(rows, 1)
        }
        _, _, none, *rows = table("BLEU", full, scores).splitlines()
        assert none == f"| None | {full:.2f} | 0.00 | {full:.2f} | 0.00 |"
        for number, row in enumerate(rows, 1):
            cells = [*encoder[number - 1], *decoder[number - 1]]
            assert row == f"| {number} | {' | '.join(f'{cell:.2f}' for cell in cells)} |"


def test_stacks_of_different_depth_and_a_score_of_zero() -> None:
    scores = {LayerId("encoder", 1): 5.0, LayerId("encoder", 2): 10.0, LayerId("decoder", 1): 0.0}
    assert table("BLEU", 10.0, scores).splitlines()[3:] == [
        "| 1 | 5.00 | -50.00 | 0.00 | -100.00 |",
        "| 2 | 10.00 | 0.00 | – | – |",
    ]
    assert table("BLEU", 0.0, {LayerId("decoder", 1): 1.0}).splitlines()[2:] == [
        "| None | 0.00 | – |",
        "| 1 | 1.00 | – |",
    ]


def value_residual(folder: Path) -> None:
    state = load_checkpoint(folder / "model.pt")
    state["cfg"]["model"].value_residual = "mean"
    for name, value in state["model"].items():
        if bytes(value.byte().flatten().tolist()).startswith(b"scheme="):
            state["model"][name] = torch.cat([value, torch.tensor(list(b" value_residual=mean"))])
    save_checkpoint(state, folder / "model.pt")


def long_sentence(folder: Path) -> None:
    binarise(folder, "test", [("s s", "e"), ("s " * 2 * MAX_POSITIONS, "e")])


REFUSED: dict[str, tuple[Callable[[Path], object], tuple[object, ...], str]] = {
    "layer out of range": (lambda f: None, ("--layer", 3), "--layer 3: the encoder has the layers 1 to 2"),
    "first layer of a value residual": (
        value_residual,
        (),
        "--layer 1: later layers of the encoder add its values .*choose one of the layers 2 to 2",
    ),
    "too little data": (
        lambda f: None,
        ("--train-sentences", 1),
        "encoder layer 1: \\d+ positions do not determine the 33 unknowns .*--train-sentences",
    ),
    "a test sentence that is too long": (long_sentence, (), "sentence 2 of test is longer than .*model.pt takes"),
}


@pytest.mark.parametrize(("harm", "options", "message"), REFUSED.values(), ids=REFUSED)
def test_refusals_take_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], harm: Callable[[Path], object], options: tuple, message: str
) -> None:
    harm(folder)
    capsys.readouterr()
    assert command(folder, *options) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert re.search(message, error.splitlines()[-1])
