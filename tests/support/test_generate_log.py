"""Logs of fairseq-generate: the order of the input, the best hypothesis, and broken logs."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands_for_tests import COMMANDS, ENVIRONMENT, USER_DIR, run
from plain_models import MAX_POSITIONS, binarise

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


def generate_alone(*arguments: object, **options: Any) -> Any:
    """Run fairseq-generate in a process of its own, whose log has another form unless tensorboardX is installed."""
    words = [COMMANDS / "fairseq-generate", *map(str, arguments)]
    return subprocess.run(words, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True, **options)


def generate_here(*arguments: object, **options: Any) -> Any:
    return run("generate", *arguments, **options)


@pytest.mark.parametrize("generate", [generate_here, pytest.param(generate_alone, marks=pytest.mark.slow)])
def test_sentences_that_were_skipped_are_empty_and_counted(
    generate: Callable[..., Any], untrained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(untrained.parent, tmp_path / "model")
    long = "▁The " * MAX_POSITIONS
    binarise(folder, "test", [(long, "▁a"), ("▁The ▁dog", "▁a"), ("▁The", "▁a"), (long, "▁a"), ("▁dog", long)])
    flags = ("--gen-subset", "test", "--skip-invalid-size-inputs-valid-test", "--beam", 2, "--max-len-b", 5, "--cpu")
    model = ("--user-dir", USER_DIR, "--path", folder / "model.pt")
    done = generate(folder, *model, *flags, stderr=subprocess.STDOUT)
    assert done.returncode == 0
    path = write(tmp_path, done.stdout)
    assert [bool(line.hypothesis) for line in read_generate_log(path)] == [False, True, True, False, False]
    assert "log: 3 of 5 sentences are too long for the model: empty outputs\n" in capsys.readouterr().err
    with pytest.raises(UserError, match="sentence 0 has no hypothesis"):
        read_generate_log(write(tmp_path, f"{done.stdout}D-6\t-1\ta\n"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no output of fairseq-generate"),
        ("D-0\t-1\ta\nD-999999999999\t-1\tc\n", "sentence 1 has no hypothesis"),
        (f"WARNING:fairseq:999,999,999 samples have invalid sizes and will be skipped\n{LOG}", "more than 1,000,000"),
        ("D-0\t-1\ta\nD-2\t-1\tc\n", "sentence 1 has no hypothesis .*: decode to the end with --required-batch-size"),
        (LOG + LOG.replace("best one", "other"), "log: a log of several runs, which differ in sentence 1: decode"),
    ],
)
def test_broken_logs(tmp_path: Path, text: str, message: str):
    with pytest.raises(UserError, match=message):
        read_generate_log(write(tmp_path, text))
