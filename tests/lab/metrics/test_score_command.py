"""Scores of files and logs by the command."""

import io
import json
import sys
from pathlib import Path

import pytest

from ode_transformer.cli.command import main
from ode_transformer.lab.metrics.registry import METRICS

NEEDS = ("hypotheses", "references")  # and no other file


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize("metric", [name for name, metric in METRICS.items() if metric.needs == NEEDS])
def test_command_on_a_file_and_standard_input(tmp_path: Path, capsys, monkeypatch, metric: str):
    """Empty lines count, and a line ends at a line feed only."""
    hypotheses = write(tmp_path / "hyp", "\nK AE T\n\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\nK AE T\u2028\nB\n".encode())))
    assert main(["score", "--metric", metric, "--json", "--hypotheses", str(hypotheses), "--references", "-"]) == 0
    scores = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {score["sentences"] for score in scores} == {3}
    details = {"per": "1 edits in 4 phonemes", "wer": "1 of 3 words wrong"}
    assert details.get(metric, scores[0]["detail"]) == scores[0]["detail"]


@pytest.mark.parametrize("pieces", ["▁The ▁c at ▁s at .", "The c@@ at s@@ at@@ ."])
def test_pieces_are_joined_unless_they_are_wanted(tmp_path: Path, capsys: pytest.CaptureFixture[str], pieces: str):
    files = [tmp_path / name for name in ("text", "pieces", "log")]
    for path, text in zip(files, ("The cat sat.\n", f"{pieces}\n", f"T-0\t{pieces}\nD-0\t-1\t{pieces}\n"), strict=True):
        write(path, text)
    text, output, log = map(str, files)
    for arguments, score in (
        (["--hypotheses", output, "--references", text], 0),
        (["--hypotheses", output, "--references", output], 0),
        (["--generate-log", log, "--references", text], 0),
        (["--hypotheses", output, "--references", text, "--remove-bpe", "none"], 100),
    ):
        assert main(["score", "--metric", "wer", "--json", *arguments]) == 0
        out, err = capsys.readouterr()
        assert json.loads(out)["value"] == score
        assert ("are joined to words; --remove-bpe none leaves them" in err) == (score == 0)


def test_a_reference_with_unknown_words_is_not_that_of_the_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    log = str(write(tmp_path / "log", "T-0\tthe <<unk>> sleeps\nD-0\t-1\tthe <unk> sleeps\n"))
    assert main(["score", "--metric", "bleu", "chrf", "--generate-log", log]) == 2
    assert "its references (T-) have unknown words: give --references" in capsys.readouterr().err
    assert main(["score", "--metric", "bleu", "--tokenize", "none", "--generate-log", log]) == 0
    references = str(write(tmp_path / "references", "the dog sleeps\n"))
    assert main(["score", "--metric", "bleu", "chrf", "--generate-log", log, "--references", references]) == 0
