"""``ode-transformer analyse outputs`` on real checkpoints of random parameters, and its tables."""

import csv
import json
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image
from plain_models import binarise

from ode_transformer.checkpoints.reading import load_checkpoint, save_checkpoint
from ode_transformer.cli.command import main
from ode_transformer.lab.analysis.outputs import Buckets
from ode_transformer.lab.metrics.metric import Settings
from ode_transformer.lab.metrics.translation_scores import bleu, length_ratio
from ode_transformer.support.lines import read_lines

PAIRS = [("▁The s t", "n er e e"), ("s s s", "e e e"), ("s " * 12, "e r " * 8), ("▁The", "n"), ("t t t t", "r r e")]
TRAIN = [("s", "e e e e"), ("t", "r n"), *[("s t", "e")] * 10]


def change(source: Path, target: Path) -> None:
    """Save a checkpoint with noise added to its parameters."""
    state = load_checkpoint(source)
    generator = torch.Generator().manual_seed(1)
    for name, value in state["model"].items():
        if value.is_floating_point() and "version" not in name:
            value += 0.1 * value.std(correction=0) * torch.randn(value.shape, generator=generator)
    save_checkpoint(state, target)


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_tables_plots_and_maps(untrained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = shutil.copytree(untrained.parent, tmp_path / "model")
    binarise(folder, "test", PAIRS)
    binarise(folder, "train", TRAIN)
    change(folder / "model.pt", folder / "other.pt")
    systems = [f"one={folder / 'model.pt'}", f"two={folder / 'other.pt'}", "--data", str(folder)]
    options = ["--beam", "2", "--max-len-b", "20", "--lengths", "3,4", "--remove-bpe", "none", "--maps", "1,4"]
    assert main(["analyse", "outputs", *systems, "--output", str(folder / "out"), *options]) == 0
    printed, out = capsys.readouterr().out, folder / "out"
    assert printed == (out / "tables.md").read_text()
    references = [" ".join(pair[1].split()) for pair in PAIRS]
    buckets = {"1-3": [0, 1, 3], "4": [4], "5+": [2]}
    for system in ("one", "two"):
        hypotheses = read_lines(out / "systems" / system / "hypotheses.txt")
        assert len(hypotheses) == len(PAIRS)
        (overall,) = (row for row in rows(out / "summary.csv") if row["system"] == system)
        assert float(overall["BLEU"]) == bleu(hypotheses, Settings(references))[0].value
        assert float(overall["length ratio"]) == length_ratio(hypotheses, Settings(references))
        for row in rows(out / "bleu_by_length.csv"):
            numbers = buckets[row["source length (tokens)"]]
            assert int(row["sentences"]) == len(numbers)
            settings = Settings([references[n] for n in numbers])
            assert float(row[system]) == bleu([hypotheses[n] for n in numbers], settings)[0].value
    # Targets with their end symbols have 5, 4, 17, 2 and 4 tokens.
    by_position = {row["target position"]: int(row["tokens"]) for row in rows(out / "accuracy_by_position.csv")}
    assert by_position == {"1-3": 3 + 3 + 3 + 2 + 3, "4": 4, "5+": 1 + 13}
    # In training e is seen 14 times, the end 12 times, r and n once, er never.
    by_frequency = rows(out / "accuracy_by_frequency.csv")
    assert [row["frequency in the training data"] for row in by_frequency] == ["0", "1-9", "10+"]
    assert [int(row["tokens"]) for row in by_frequency] == [1, 2 + 8 + 2, 2 + 3 + 8 + 1 + 5]
    assert main(["analyse", "outputs", *systems, "--output", str(out), *options, "--frequencies", "0,99,12,1"]) == 0
    by_frequency = rows(out / "accuracy_by_frequency.csv")
    assert [row["frequency in the training data"] for row in by_frequency] == ["0", "1", "2-12", "13+"]
    assert json.loads((out / "results.json").read_text())["signature"].startswith("nrefs:1|case:mixed")
    names = ["length_ratio", "bleu_by_length", "length_ratio_by_length"]
    names += ["accuracy_by_position", "accuracy_by_frequency"]
    maps = [f"attention/{s}-{n}-attention_over_the_source" for s in ("one", "two") for n in (1, 4)]
    for name in [*names, *maps]:
        image = Image.open(out / f"{name}.png").convert("RGB")
        assert len(image.getcolors(1 << 20)) > 10
    shown = json.loads((out / f"{maps[0]}.json").read_text())
    assert shown["tokens"] == [["n", "er", "e", "e", "</s>"], ["▁The", "s", "t", "</s>"]]
    assert [sum(line) for line in shown["weights"]] == pytest.approx([1] * 5)


def test_every_number_is_in_the_bucket_that_names_it() -> None:
    lengths = Buckets((10, 20, 50), "length", "tokens")
    assert lengths.names() == ["1-10", "11-20", "21-50", "51+"]
    assert lengths.indices([1, 10, 11, 20, 21, 50, 51, 1000]).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    frequencies = Buckets((0, 9, 99), "frequency", "tokens", start=0)
    assert frequencies.names() == ["0", "1-9", "10-99", "100+"]
    assert frequencies.indices([0, 1, 9, 10, 99, 100]).tolist() == [0, 1, 1, 2, 2, 3]
    assert Buckets((), "frequency", "tokens", start=0).names() == ["0+"]
