"""``ode-transformer analyse linear-probe``: results, resuming after an interruption, and refusals."""

import json
import shutil
from pathlib import Path

import pytest
import sentencepiece
from plain_models import PAIRS, binarise

from ode_transformer.checkpoints.reading import load_checkpoint, save_checkpoint
from ode_transformer.cli.command import main
from ode_transformer.support.lines import read_lines

# Batches of few tokens, so that a pass over the training data has several.
SHORT = ("--cpu", "--remove-bpe", "sentencepiece", "--max-len-b", "6", "--beam", "2", "--max-tokens", "150")


@pytest.fixture
def folder(untrained: Path, tmp_path: Path) -> Path:
    """The model's folder with training and test data; the targets are hypotheses of a kind, so that BLEU is not 0."""
    folder = shutil.copytree(untrained.parent, tmp_path / "model")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.bpe.model"))
    pairs = [tuple(" ".join(pieces.encode(side, out_type=str)) for side in pair) for pair in PAIRS]
    binarise(folder, "train", pairs[:40])
    binarise(folder, "test", pairs[40:])
    return folder


def command(folder: Path, *options: object, output: str = "out") -> int:
    words = [folder / "model.pt", "--data", folder, "--output", folder / output, *SHORT, "--metric", "chrf", *options]
    return main(["analyse", "linear-probe", *map(str, words)])


def test_all_layers_in_turn(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(folder) == 0
    out, err = capsys.readouterr()
    assert (folder / "out" / "table.md").read_text() == out
    head, _, none, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in out.splitlines()]
    assert head == ["Layer", "Encoder chrF2", "Δ (%)", "Decoder chrF2", "Δ (%)"]
    found = json.loads((folder / "out" / "results.json").read_text())
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
    assert "R² " in err


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
        [(lambda: None, ("--train-sentences", 30), 1), (lambda: None, ("--beam", 3), 0), (change_the_model, (), 0)]
    ):
        change()
        capsys.readouterr()
        assert command(folder, *layer, *more) == 0
        here, err = capsys.readouterr()
        assert err.count("decode encoder layer 1, least-squares: already done") == 0
        assert err.count("decode the whole model: already done") == done
        assert command(folder, *layer, *more, output=f"new{number}") == 0
        assert capsys.readouterr().out == here
