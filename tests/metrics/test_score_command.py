"""Scores of files and logs by the command."""

import io
import json
import sys
from pathlib import Path

import pytest

from ode_transformer.cli.command import main
from ode_transformer.metrics.registry import METRICS

# The metrics that require hypotheses and references, and no other file
REFERENCE_METRICS = {name: metric for name, metric in METRICS.items() if metric.needs == ("hypotheses", "references")}


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


# --- the command -------------------------------------------------------------------------------


def test_command_on_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    hypotheses = write(tmp_path / "hyp", "K AE T\nD AA G\n")
    references = write(tmp_path / "ref", "K AE T\nD AO G\n")
    files = ["--hypotheses", str(hypotheses), "--references", str(references)]
    assert main(["score", "--metric", "per", "wer", "--json", *files]) == 0
    per, wer = map(json.loads, capsys.readouterr().out.splitlines())
    assert (per["metric"], per["value"], per["sentences"]) == ("PER", pytest.approx(100 / 6), 2)
    assert (wer["metric"], wer["value"]) == ("WER", 50)


def test_command_on_a_log_prints_the_signature(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    log = write(tmp_path / "log", "T-0\tThe cat sat down.\nD-0\t-1\tThe cat sat down.\n")
    assert main(["score", "--metric", "bleu", "chrf", "--tokenize", "intl", "--generate-log", str(log)]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("BLEU 100.00 (")
    assert "1 lines; nrefs:1|case:mixed|eff:no|tok:intl|smooth:exp|version:" in first
    assert second.startswith("chrF2 100.00 (")


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


@pytest.mark.parametrize("metrics", [["bleu"], ["chrf"], ["bleu", "chrf"]])
def test_a_reference_with_unknown_words_is_not_that_of_the_text(tmp_path: Path, capsys, metrics: list[str]):
    log = str(write(tmp_path / "log", "T-0\tthe <<unk>> sleeps\nD-0\t-1\tthe <unk> sleeps\n"))
    assert main(["score", "--metric", *metrics, "--generate-log", log]) == 2
    assert "its references (T-) have unknown words: give --references" in capsys.readouterr().err
    assert main(["score", "--metric", "bleu", "--tokenize", "none", "--generate-log", log]) == 0
    references = str(write(tmp_path / "references", "the dog sleeps\n"))
    assert main(["score", "--metric", *metrics, "--generate-log", log, "--references", references]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--metric", "per", "--generate-log", "{log}", "--lowercase"], "--lowercase goes with --metric bleu or chrf"),
        (["--metric", "per", "--generate-log", "{log}"], "references (T-) are not there for every sentence"),
        (["--metric", "per", "--hypotheses", "{log}"], "--metric per needs --references"),
        (["--metric", "per", "--references", "{log}"], "--metric per needs --hypotheses or --generate-log"),
        (["--metric", "perplexity"], "--metric perplexity needs --eval-lm-log"),
        (
            ["--metric", "bleu", "chrf", "--generate-log", "{log}", "--flavour", "get_ende_bleu"],
            "--flavour changes a text that --metric chrf would read unchanged: score it alone",
        ),
        (["--metric", "bleu", "--generate-log", "{log}", "--compound-split"], "--compound-split without --tokenize"),
    ],
)
def test_wrong_options(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str):
    log = write(tmp_path / "log", "D-0\t-1\tA\n")
    assert main(["score", *(argument.format(log=log) for argument in arguments)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_several_references(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    texts = ["a b c d\nx y z w\n", "a b c d\nq\n", "q\nx y z w\n"]
    hypotheses, *references = (str(write(tmp_path / str(number), text)) for number, text in enumerate(texts))
    files = ["--hypotheses", hypotheses, hypotheses, "--references", *references, "--bootstrap-samples", "10"]
    assert main(["score", "--metric", "bleu", "chrf", *files]) == 0
    for line in capsys.readouterr().out.splitlines():
        assert " 100.00 (" in line
        assert "nrefs:2|" in line


def test_standard_input(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("K AE T\u2028\nB\n".encode())))
    files = {"--hypotheses": str(tmp_path / "text"), "--references": "-"}
    write(tmp_path / "text", "K AE T\nB\n")
    assert main(["score", "--metric", "wer", *(word for option in files.items() for word in option)]) == 0
    assert capsys.readouterr().out.startswith("WER 0.00 (0 of 2 words wrong; 2 lines;")


def test_empty_lines_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    texts = {
        "--hypotheses": write(tmp_path / "hyp", "\nA B\n\n"),
        "--references": write(tmp_path / "ref", "\nA B\nC\n"),
    }
    words = [str(word) for option in texts.items() for word in option]
    assert main(["score", "--metric", *REFERENCE_METRICS, *words]) == 0
    out = capsys.readouterr().out
    assert "PER 33.33 (1 edits in 3 phonemes; 3 lines;" in out
    assert "WER 33.33 (1 of 3 words wrong; 3 lines;" in out
