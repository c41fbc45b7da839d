"""Reformer by fairseq's own commands: pairs of too many cells."""

from pathlib import Path

import pytest
from commands_for_tests import BATCHES, USER_DIR, Text, lines_of, run, succeed, training

from ode_transformer.cli.command import main

pytestmark = pytest.mark.slow

FAST = "reformer_fast_tiny"


def test_pairs_of_too_many_cells(text: Text, tmp_path: Path) -> None:
    """The plain task stops when one comes; ours trains on the others."""
    limit = ("--max-joint-cells", 150)
    done = run("train", *training(text, tmp_path / "plain", FAST, BATCHES, *limit))
    assert done.returncode != 0
    assert "a sentence pair has" in done.stderr.rstrip().splitlines()[-1]
    assert not list((tmp_path / "plain").glob("checkpoint*.pt"))
    flags = (*limit, "--task", "joint_translation", "--joint-cells-overflow", "skip")
    out = succeed("train", *training(text, tmp_path / "skip", FAST, 6, *flags), stderr=-2)
    assert ": skipped" in out
    # Its checkpoint decodes, pairs of all sizes among them, under its own task and by our command.
    checkpoint = tmp_path / "skip" / "checkpoint_last.pt"
    decoding = ("--user-dir", USER_DIR, "--cpu", "--path", checkpoint, "--task", "joint_translation")
    assert len(lines_of(succeed("generate", text.data, *decoding, "--max-len-a", 0, "--max-len-b", 20), "H")) == 8
    (tmp_path / "lines.en").write_text("▁The ▁dog s .\n\n▁It ▁is\n")
    words = ("translate", text.data, "--path", checkpoint, "--input", tmp_path / "lines.en", "--bpe", "none")
    assert main([*map(str, words), "--output", str(tmp_path / "lines.de"), "--max-len-b", "5"]) == 0
    assert len((tmp_path / "lines.de").read_text().split("\n")) == 4
