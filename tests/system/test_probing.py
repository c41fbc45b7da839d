"""``ode-transformer analyse linear-probe`` on a trained model, against fairseq-generate."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from commands_for_tests import COMMANDS, TIMEOUT, USER_DIR, Text, lines_of, succeed
from forked_commands import run_forked

from ode_transformer.support.lines import read_lines

pytestmark = pytest.mark.slow

SEARCH = ("--remove-bpe", "sentencepiece", "--max-len-b", 20, "--beam", 3, "--cpu")


def words_of(text: Text, checkpoint: Path, output: Path) -> list[object]:
    words = ["--data", text.data, "--output", output, "--split", "train", *SEARCH]
    return ["analyse", "linear-probe", checkpoint, *words]


def succeed_with(words: Sequence[object]) -> str:
    """Run ``ode-transformer`` and return its standard output."""
    done = run_forked([str(COMMANDS / "ode-transformer"), *map(str, words)], "", False, TIMEOUT)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("method", ["rk2"])
def test_the_whole_model_translates_as_fairseq_does_and_replaced_layers_do_not(
    text: Text, learned: Callable[[str], Path], tmp_path: Path, method: str
) -> None:
    checkpoint = learned(method)
    out = succeed_with(words_of(text, checkpoint, tmp_path / "out"))
    common = ("--user-dir", USER_DIR, "--path", checkpoint, "--required-batch-size-multiple", 1)
    printed = succeed("generate", text.data, "--gen-subset", "train", *common, *SEARCH)
    for kind, name in (("D", "hypotheses/none.txt"), ("T", "references.txt")):
        expected = [fields[-1] for _, fields in sorted(lines_of(printed, kind).items())]
        assert read_lines(tmp_path / "out" / name) == expected
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in out.splitlines()]
    assert [row[0] for row in rows[2:]] == ["None", "1", "2"]
    full = float(rows[2][1])
    assert full > 60  # it knows the sentences that it was trained on
    # Without its last layer's attention to the source, a decoder of two layers has lost most of what it knew.
    assert all(float(row[3]) < 0.5 * full for row in rows[3:])
    score = ["score", "--metric", "bleu", "--references", tmp_path / "out" / "references.txt"]
    systems = [tmp_path / "out" / "hypotheses" / f"{name}.txt" for name in ("none", "decoder-2.least-squares")]
    first, second, *_ = succeed_with([*score, "--hypotheses", *systems]).splitlines()
    assert f"BLEU {full:.2f} " in first
    assert "p = 0.001 against " in second
