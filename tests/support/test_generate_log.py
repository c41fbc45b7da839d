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


def write(folder: Path, text: str) -> Path:
    path = folder / "log"
    path.write_bytes(text.encode())
    return path


def test_log_in_the_order_of_the_input_with_the_best_hypothesis(tmp_path: Path):
    assert read_generate_log(write(tmp_path, LOG + LOG)) == [
        Translation(0, "", "", ""),
        Translation(1, "source one", "reference one", "best one"),
    ]


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
