"""``ode-transformer compare`` on a model that has learned its sentences, beside fairseq-generate."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest
from commands_for_tests import PAIRS, USER_DIR, Text, lines_of, succeed

from ode_transformer.cli.command import main
from ode_transformer.support.lines import read_lines

pytestmark = pytest.mark.slow


def test_a_learned_model_beside_an_unlearned_one(
    text: Text, trained: Path, learned: Callable[[str], Path], tmp_path: Path
) -> None:
    systems = {"learned": learned("rk2"), "early": trained / "checkpoint1.pt"}
    words = [f"{name}={path}" for name, path in systems.items()]
    words += ["--output", str(tmp_path), "--split", "train", "--remove-bpe", "sentencepiece", "--cpu", "--maps", "40"]
    assert main(["analyse", "outputs", *words, "--data", str(text.data)]) == 0

    with open(tmp_path / "summary.csv", newline="") as file:
        learned_row, early_row = csv.DictReader(file)
    assert float(learned_row["BLEU"]) > 90
    assert float(learned_row["accuracy (%)"]) > 95
    assert float(learned_row["length ratio"]) == pytest.approx(1, abs=0.05)
    assert float(early_row["BLEU"]) < 10
    assert float(early_row["-log p"]) > 5 * float(learned_row["-log p"])
    assert (tmp_path / "attention" / "learned-40-attention_over_the_source.png").stat().st_size > 0

    options = ("--user-dir", USER_DIR, "--gen-subset", "train", "--beam", 5, "--remove-bpe", "sentencepiece", "--cpu")
    printed = succeed(
        "generate", text.data, "--path", systems["learned"], *options, "--required-batch-size-multiple", 1
    )
    fairseqs = lines_of(printed, "D")
    assert len(fairseqs) == len(PAIRS) - 8
    assert read_lines(tmp_path / "systems" / "learned" / "hypotheses.txt") == [
        fairseqs[number][1] for number in range(len(fairseqs))
    ]
