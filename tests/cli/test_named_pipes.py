"""A named pipe or device in the place of an input file is refused at once: nobody may ever write to it."""

import os
import signal
from pathlib import Path

import pytest

from ode_transformer.cli import main

COMMANDS = {
    "average": ("{}", "--output", "out"),
    "convert": ("{}", "--output", "out"),
    "export": ("--to", "ctranslate2", "--path", "{}", "--output", "out"),
    "translate, model": ("--path", "{}", "--input", "text"),
    "translate, text": ("--path", "text", "--input", "{}"),
    "score, hypotheses": ("--metric", "wer", "--hypotheses", "{}", "--references", "text"),
    "score, references": ("--metric", "wer", "--hypotheses", "text", "--references", "{}"),
    "score, log": ("--metric", "wer", "--generate-log", "{}"),
    "score, gold": ("--metric", "m2", "--hypotheses", "text", "--gold", "{}"),
    "score, perplexity": ("--metric", "perplexity", "--eval-lm-log", "{}"),
    "analyse, coefficients": ("coefficients", "{}", "--data", "."),
    "analyse, truncation error": ("truncation-error", "{}", "--data", "."),
    "analyse, curves": ("curves", "{}", "--output", "out.png"),
}


@pytest.mark.parametrize("case", COMMANDS)
@pytest.mark.parametrize("source", ["pipe", "/dev/zero"])
def test_no_command_waits(
    case: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("text").write_text("a\n")
    signal.alarm(20)  # ends the tests, should the command wait
    try:
        assert main([case.partition(",")[0], *(word.format(source) for word in COMMANDS[case])]) == 2
    finally:
        signal.alarm(0)
    out, error = capsys.readouterr()
    assert out == ""
    assert error.count("\n") == 1
    assert f"{source}: not a regular file" in error
    assert sorted(os.listdir()) == ["pipe", "text"]
