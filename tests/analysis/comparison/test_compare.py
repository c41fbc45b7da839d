"""``ode-transformer compare`` on real checkpoints of random parameters."""

import csv
import json
import shutil
from pathlib import Path

import pytest
import torch
from checkpoint_for_tests import binarise
from PIL import Image

from ode_transformer.analysis.comparison import system_results
from ode_transformer.checkpoints.reading import load_checkpoint, save_checkpoint
from ode_transformer.cli.command import main
from ode_transformer.metrics.metric import Settings
from ode_transformer.metrics.translation_scores import bleu, length_ratio
from ode_transformer.support.lines import read_lines

PAIRS = [("▁The s t", "n er e e"), ("s s s", "e e e"), ("s " * 12, "e r " * 8), ("▁The", "n"), ("t t t t", "r r e")]
TRAIN = [("s", "e e e e"), ("t", "r n"), *[("s t", "e")] * 10]


@pytest.fixture
def folder(untrained: Path, tmp_path: Path) -> Path:
    """A test set, a training set, ``model.pt`` and another model, ``other.pt``."""
    folder = shutil.copytree(untrained.parent, tmp_path / "model")
    binarise(folder, "test", PAIRS)
    binarise(folder, "train", TRAIN)
    change(folder / "model.pt", folder / "other.pt")
    return folder


def change(source: Path, target: Path) -> None:
    """Save a checkpoint with noise added to its parameters."""
    state = load_checkpoint(source)
    generator = torch.Generator().manual_seed(1)
    for name, value in state["model"].items():
        if value.is_floating_point() and "version" not in name:
            value += 0.1 * value.std(correction=0) * torch.randn(value.shape, generator=generator)
    save_checkpoint(state, target)


def command(folder: Path, *arguments: str) -> int:
    systems = [f"one={folder / 'model.pt'}", f"two={folder / 'other.pt'}"]
    search = ["--beam", "2", "--max-len-b", "20", "--lengths", "3,4", "--remove-bpe", "none"]
    return main(
        ["analyse", "outputs", *systems, "--data", str(folder), "--output", str(folder / "out"), *search, *arguments]
    )


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_pieces_of_the_dictionary_are_joined(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(folder) == 0
    hypotheses = folder / "out" / "systems" / "one" / "hypotheses.txt"
    pieces = read_lines(hypotheses)
    arguments = ["analyse", "outputs", f"one={folder / 'model.pt'}", "--data", str(folder)]
    arguments += ["--output", str(folder / "out")]
    assert main([*arguments, "--beam", "2", "--max-len-b", "20"]) == 0
    assert read_lines(hypotheses) == [line.replace(" ", "").replace("▁", " ").strip() for line in pieces] != pieces


def test_tables_plots_and_maps(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(folder, "--maps", "1,4") == 0
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
    assert json.loads((out / "results.json").read_text())["signature"].startswith("nrefs:1|case:mixed")
    names = [
        "length_ratio",
        "bleu_by_length",
        "length_ratio_by_length",
        "accuracy_by_position",
        "accuracy_by_frequency",
    ]
    maps = [f"attention/{s}-{n}-attention_over_the_source" for s in ("one", "two") for n in (1, 4)]
    for name in [*names, *maps]:
        image = Image.open(out / f"{name}.png").convert("RGB")
        assert len(image.getcolors(1 << 20)) > 10
    shown = json.loads((out / f"{maps[0]}.json").read_text())
    assert shown["tokens"] == [["n", "er", "e", "e", "</s>"], ["▁The", "s", "t", "</s>"]]
    assert [sum(line) for line in shown["weights"]] == pytest.approx([1] * 5)


def test_translations_equal_those_of_translate(folder: Path) -> None:
    assert command(folder) == 0
    (folder / "input").write_text("".join(f"{source.strip()}\n" for source, _ in PAIRS))
    arguments = ["--path", str(folder / "model.pt"), "--bpe", "none", "--beam", "2", "--max-len-b", "20"]
    files = ["--input", str(folder / "input"), "--output", str(folder / "output")]
    assert main(["translate", *arguments, *files]) == 0
    assert (folder / "output").read_bytes() == (folder / "out" / "systems" / "one" / "hypotheses.txt").read_bytes()


def test_a_system_is_decoded_again_only_if_it_changed(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    searches = []

    def translate_split(hub, split, numbers, *options, **search):
        searches.append(len(numbers))
        return original(hub, split, numbers, *options, **search)

    original = system_results.translate_split
    monkeypatch.setattr(system_results, "translate_split", translate_split)
    assert command(folder) == 0
    assert searches == [5, 5]
    expected = capsys.readouterr().out
    assert command(folder) == 0
    assert capsys.readouterr().out == expected
    assert searches == [5, 5]
    assert command(folder, "--lengths", "2", "--maps", "2") == 0  # another presentation of the same results
    assert searches == [5, 5]
    change(folder / "other.pt", folder / "other.pt")
    assert command(folder) == 0
    assert capsys.readouterr().err.count("decode: already done") == 3  # both at first, then the unchanged one
    assert searches == [5, 5, 5]
    assert command(folder, "--beam", "3", "--sentences", "2") == 0
    assert searches == [5, 5, 5, 2, 2]


def test_without_training_data(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for file in folder.glob("train.*"):
        file.unlink()
    assert command(folder) == 0
    out, error = capsys.readouterr()
    assert "no training data in it, so no accuracy by frequency" in error
    assert "frequency in the training data" not in out


@pytest.mark.parametrize(("options", "message"), [(["--maps", "6"], "--maps 6: the sentences are 1 to 5")])
def test_sentences_that_are_not_there(
    folder: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(folder, *options) == 2
    assert message in capsys.readouterr().err
