"""Which sentences of which split a report looks into."""

import argparse
from pathlib import Path

import pytest

from ode_transformer.cli import main
from ode_transformer.pages import report_command
from ode_transformer.pages.runs import ReportedRun


def test_options_that_logs_alone_cannot_follow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "scores.json").write_text("{}")
    for words in (["--lines", "3"], ["--sentences", "9"], ["--split", "test"], ["--data", "x"]):
        output = ["--output", str(tmp_path / "report.html")]
        assert main(["report", str(tmp_path), "--logs-only", *words, *output]) == 2
        assert f"--logs-only loads no model: it does not go with {words[0]}\n" in capsys.readouterr().err


SENTENCES = {"test": 40, "valid": 10}


@pytest.mark.parametrize(
    ("words", "split", "numbers"),
    [
        ([], "test", [1, 14, 27]),
        (["--split", "test"], "test", [1, 14, 27]),
        (["--split", "valid"], "valid", None),  # sentences are chosen by the outputs of the test set
        (["--split", "valid", "--lines", "2,3"], "valid", [2, 3]),
    ],
)
def test_sentences_are_chosen_in_the_split_that_is_measured(
    words: list[str], split: str, numbers: list[int] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = []
    monkeypatch.setattr(report_command, "measure_systems", lambda *values: measured.append(values[1:]) or {})
    for name, count in SENTENCES.items():
        line = "\t-0.1\ta b c d e f\n"
        text = "".join(f"S-{n}\tu v w x y z\nT-{n}\ta b c d e f\nH-{n}{line}D-{n}{line}" for n in range(count))
        (tmp_path / f"generate.{name}.log").write_text(text)
    parser = argparse.ArgumentParser()
    report_command.add_arguments(parser)
    args = parser.parse_args([str(tmp_path), *words])
    report_command.build_report([ReportedRun(tmp_path, "a")], {}, args, "ode-transformer report")
    ((measured_split, _, measured_numbers),) = measured
    assert (measured_split, measured_numbers) == (split, numbers)
