"""``ode-transformer coefficients`` on files that are not what they should be."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoint_for_tests import MAX_POSITIONS, binarise, flip_in_a_tensor

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
    return main(["coefficients", str(folder), "--path", str(folder / "model.pt"), *options])


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


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


HARM: dict[str, tuple[Callable[[Path], object], str]] = {
    "truncated checkpoint": (lambda f: cut(f / "model.pt"), "model.pt: broken or truncated"),
    "flipped bit": (lambda f: flip_in_a_tensor(f / "model.pt"), "model.pt: broken or truncated"),
    "no data": (lambda f: (f / "valid.en-de.en.idx").unlink(), "no data of the split 'valid'"),
    "truncated data": (lambda f: cut(f / "valid.en-de.de.bin"), "no data of the split 'valid' .*: buffer is smaller"),
    "truncated index": (lambda f: cut(f / "valid.en-de.en.idx"), "no data of the split 'valid'"),
    "data of another dictionary": (
        lambda f: (f / "valid.en-de.en.bin").write_bytes(b"\x7f" * 100),
        "no data of the split 'valid' .*: it has tokens that are not in the dictionary",
    ),
    "missing dictionary": (lambda f: (f / "dict.en.txt").unlink(), "dict.en.txt: missing"),
    "broken dictionary": (lambda f: (f / "dict.de.txt").write_bytes(b"a\xff 1\n"), "dict.de.txt: not a dictionary"),
}


@pytest.mark.parametrize(("harm", "message"), HARM.values(), ids=HARM)
def test_broken_files(
    folder: Path, capsys: pytest.CaptureFixture[str], harm: Callable[[Path], object], message: str
) -> None:
    harm(folder)
    assert command(folder) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("ode-transformer coefficients: error: ")
    assert re.search(message, error)
    assert error.count("\n") == 1
