"""Memory of one Reformer batch, from which --max-joint-cells is chosen."""

import re

import joint_memory
import pytest

TINY = ["--arch", "reformer_fast_tiny", "--tokens", "60", "--length", "10"]


def peak(capsys: pytest.CaptureFixture[str], *flags: str) -> float:
    assert joint_memory.main([*TINY, *flags]) == 0
    printed = capsys.readouterr().out
    assert "6 pairs of 10 × 10, 600 cells" in printed
    return float(re.search(r"peak ([\d,]+) MiB", printed)[1].replace(",", ""))


def test_fewer_cells_recomputation_and_half_precision_save_memory(capsys: pytest.CaptureFixture[str]) -> None:
    memory = peak(capsys)
    assert peak(capsys, "--max-joint-cells", "200") < 0.7 * memory
    assert peak(capsys, "--checkpoint-activations") < 0.7 * memory
    assert peak(capsys, "--precision", "bf16") < 0.7 * memory


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--arch", "transformer"], "--arch transformer: not a Reformer"),
        (["--arch", "reformer_xyz"], "--arch reformer_xyz: not a Reformer"),
        (["--tokens", "9"], "--tokens 9 are less than one sentence of --length 10"),
        (["--length", "0"], "0 is not a whole number from 1 on"),
    ],
)
def test_impossible_options_are_refused(flags: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        joint_memory.main([*TINY, *flags])
    assert exit_info.value.code == 2
    assert message in capsys.readouterr().err
