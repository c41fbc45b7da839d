"""The measurement of model scaling: table and complete runs."""

import json
import math
from pathlib import Path

import pytest
from commands_for_tests import SMALL, Text
from programs_here import start_programs_here

from ode_transformer.cli import main
from ode_transformer.lab.analysis.training_log import read_log


@pytest.mark.slow
def test_the_table_has_the_losses_of_its_trainings(
    text: Text, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    start_programs_here(monkeypatch)
    options = ["--arch", "macaron_tiny", "--data", text.data, "--updates", 8, "--seeds", 3, "--output", tmp_path]
    flags = ["--share-all-embeddings", "--optimizer", "adam", "--lr", 0.01, "--batch-size", 10, "--dropout", 0.3]
    flags += [*SMALL, "--criterion", "label_smoothed_cross_entropy"]
    status = main(["analyse", "scaling", *map(str, [*options, "--", *flags])])
    printed, error = capfd.readouterr()
    # Chance decides whether the larger models of so small a study are better.
    assert status == 0 or "neither may be negative" in error
    assert printed.count("\n+ fairseq-train") == 3
    (result,) = tmp_path.glob("*/*/scaling.json")
    numbers = json.loads(result.read_text())
    losses = numbers["losses"]["3"]
    assert numbers["gradients"] == pytest.approx([losses["base"] - losses[name] for name in ("l+1", "w+1")])
    for name, loss in losses.items():  # fairseq's own figure: bits with three decimals
        (folder,) = tmp_path.glob(f"*/*/{name}-seed3")
        validations = [point for point in read_log(folder / "train.log") if point.split == "valid"]
        best = min(validations, key=lambda point: point.loss)
        assert loss / math.log(2) == pytest.approx(best.nll_loss, abs=6e-4)
