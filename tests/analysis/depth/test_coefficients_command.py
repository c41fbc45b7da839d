"""``ode-transformer coefficients`` on files that are not what they should be."""

import re
import shutil
from pathlib import Path

import pytest
from checkpoint_for_tests import MAX_POSITIONS, binarise

from ode_transformer.analysis.depth.coefficients import StageWeights, table
from ode_transformer.cli.command import main

SENTENCES = [("▁The s", "▁D er"), ("s s s", "e e e")]


@pytest.fixture
def folder(untrained: Path, tmp_path: Path) -> Path:
    """A copy of the model's folder with two sentences as its validation set."""
    folder = shutil.copytree(untrained.parent, tmp_path / "model")
    binarise(folder, "valid", SENTENCES)
    return folder


def command(folder: Path, *options: str) -> int:
    return main(["analyse", "coefficients", str(folder / "model.pt"), "--data", str(folder), *options])


def test_the_weights_of_both_layers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(folder) == 0
    out, error = capsys.readouterr()
    assert re.fullmatch(r"(encoder layer [12]:(  [\d.]+ ± [\d.]+){2}\n){2}", out)
    assert error == ""


def test_sentences_that_are_too_long_are_left_out(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(folder) == 0
    expected = capsys.readouterr().out
    binarise(folder, "long", [SENTENCES[0], ("s " * 5000, "e"), ("s", "e " * MAX_POSITIONS), SENTENCES[1]])
    assert command(folder, "--split", "long") == 0
    assert capsys.readouterr().out == expected
    binarise(folder, "nothing", [("s " * 5000, "e")])
    assert command(folder, "--split", "nothing") == 2
    assert "it has no sentence that the model takes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("weights", "of_gate", "explained"),
    [
        ([(1.0, 0.0), (0.001, 0.999)], True, True),
        ([(2.0, 0.0), (0.03, 1.97)], True, True),  # with --ode-gate-sum stages
        ([(1.0, 0.0), (0.6, 0.4)], True, False),
        ([(0.0, 1.0)], False, False),  # a tableau's
    ],
)
def test_saturated_gates_are_explained(weights: list[tuple[float, float]], of_gate: bool, explained: bool) -> None:
    rows = [StageWeights("encoder layer 1", mean, (0.0, 0.0), of_gate) for mean in weights]
    assert ("1 for the first is a plain residual layer" in table(rows)) == explained
    earlier = StageWeights("encoder layer 1, earlier layers", (0.3, 0.7), (0.0, 0.0))  # of a PCformer
    assert ("1 for the first is a plain residual layer" in table([*rows, earlier])) == explained
