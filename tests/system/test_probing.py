"""``ode-transformer probe-linear`` on a model that fairseq trained, as a user types it, against fairseq-generate."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from commands_for_tests import COMMANDS, USER_DIR, Text, lines_of, succeed
from commands_for_tests import ENVIRONMENT as WITHOUT_PATH

import ode_transformer
from ode_transformer.support.checkpoint_file import load_checkpoint
from ode_transformer.support.lines import read_lines

pytestmark = pytest.mark.slow

ENVIRONMENT = WITHOUT_PATH | {"PYTHONPATH": str(Path(ode_transformer.__file__).parent.parent)}
SEARCH = ("--gen-subset", "train", "--remove-bpe", "sentencepiece", "--max-len-b", 20, "--beam", 3, "--cpu")


def start(text: Text, checkpoint: Path, output: Path, *options: object) -> subprocess.Popen[str]:
    words = ["probe-linear", text.data, "--path", checkpoint, "--output", output, *SEARCH, *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": ENVIRONMENT}
    return subprocess.Popen([COMMANDS / "ode-transformer", *map(str, words)], **pipes)


def probe(*words: object) -> str:
    process = start(*words)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out


@pytest.mark.parametrize("method", ["euler", "rk2"])
def test_the_whole_model_translates_as_fairseq_does_and_replaced_layers_do_not(
    text: Text, learned: Callable[[str], Path], tmp_path: Path, method: str
) -> None:
    checkpoint = learned(method)
    out = probe(text, checkpoint, tmp_path / "out")
    common = ("--user-dir", USER_DIR, "--path", checkpoint, "--required-batch-size-multiple", 1)
    printed = succeed("generate", text.data, *common, *SEARCH)
    for kind, name in (("D", "hypotheses/none.txt"), ("T", "references.txt")):
        expected = [fields[-1] for _, fields in sorted(lines_of(printed, kind).items())]
        assert read_lines(tmp_path / "out" / name) == expected
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in out.splitlines()]
    assert [row[0] for row in rows[2:]] == ["None", "1", "2"]
    full = float(rows[2][1])
    assert full > 60  # it knows the sentences that it was trained on
    # Without its last layer's attention to the source, a decoder of two layers has lost most of what it knew.
    assert all(float(row[3]) < 0.5 * full for row in rows[3:])
    score = [
        COMMANDS / "ode-transformer",
        "score",
        "--metric",
        "bleu",
        "--references",
        tmp_path / "out" / "references.txt",
    ]
    systems = [tmp_path / "out" / "hypotheses" / f"{name}.txt" for name in ("none", "decoder-2.least-squares")]
    done = subprocess.run(
        [*score, "--hypotheses", *systems], capture_output=True, text=True, env=ENVIRONMENT, check=True
    )
    assert f"BLEU {full:.2f} " in done.stdout.splitlines()[0]
    assert "p = 0.0010 against " in done.stdout.splitlines()[1]


def test_killed_wherever_it_goes_on_to_the_same_results(
    text: Text, learned: Callable[[str], Path], tmp_path: Path
) -> None:
    checkpoint = learned("rk2")
    options = ("--objective", "nll", "--updates", 20, "--stack", "encoder", "--max-tokens", 100)
    begun = time.monotonic()
    expected = probe(text, checkpoint, tmp_path / "whole", *options)
    duration = time.monotonic() - begun
    for share in (0.5, 0.7, 0.85):
        process = start(text, checkpoint, tmp_path / "out", *options)
        time.sleep(share * duration)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert probe(text, checkpoint, tmp_path / "out", *options) == expected
    for path in sorted((tmp_path / "whole" / "solutions").iterdir()):
        found = load_checkpoint(tmp_path / "out" / "solutions" / path.name)["model"]
        for name, tensor in load_checkpoint(path)["model"].items():
            assert torch.equal(found[name], tensor)
    assert not [name for name in os.listdir(tmp_path / "out" / "solutions") if "partial" in name]
