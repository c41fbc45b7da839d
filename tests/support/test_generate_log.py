"""Logs of fairseq-generate: the order of the input, the best hypothesis, and broken logs."""

from pathlib import Path

import pytest

from ode_transformer.support.errors import UserError
from ode_transformer.support.generate_log import Translation, read_generate_log

LOG = """some other line
S-1\tsource one
T-1\treference one
H-1\t-0.5\ttok en one
D-1\t-0.5\tbest one
P-1\t-0.1 -0.4
H-1\t-0.7\ttok en two
D-1\t-0.7\tsecond one
S-0\t
T-0\t
H-0\t-1.5\t
D-0\t-1.5\t
Generate test with beam=5: BLEU4 = 12.3
"""
SKIPPED = "invalid sizes and will be skipped, max_positions=(9, 9), first few sample ids=[4, 2]"


def write(folder: Path, text: str) -> Path:
    path = folder / "log"
    path.write_bytes(text.encode())
    return path


def test_log_in_the_order_of_the_input_with_the_best_hypothesis(tmp_path: Path):
    assert read_generate_log(write(tmp_path, LOG + LOG)) == [
        Translation(0, "", "", ""),
        Translation(1, "source one", "reference one", "best one"),
    ]


def test_sentences_that_were_skipped_are_empty_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = f"2026-01-01 10:00:00 | WARNING | fairseq.tasks.fairseq_task | 2 samples have {SKIPPED}\n{LOG}D-3\t-1\ta\n"
    translations = read_generate_log(write(tmp_path, log))
    assert [line.hypothesis for line in translations] == ["", "best one", "", "a", ""]
    assert capsys.readouterr().err.endswith("log: 2 of 5 sentences are too long for the model: empty outputs\n")
    with pytest.raises(UserError, match="sentence 2 has no hypothesis"):
        read_generate_log(write(tmp_path, f"{log}D-6\t-1\ta\n"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no output of fairseq-generate"),
        ("D-0\t-1\ta\nD-2\t-1\tc\n", "sentence 1 has no hypothesis .*: decode to the end with --required-batch-size"),
        (LOG + LOG.replace("best one", "other"), "log: a log of several runs, which differ in sentence 1: decode"),
    ],
)
def test_broken_logs(tmp_path: Path, text: str, message: str):
    with pytest.raises(UserError, match=message):
        read_generate_log(write(tmp_path, text))
