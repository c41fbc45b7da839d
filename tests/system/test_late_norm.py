"""On a GPU the norm of gradients is read one update late; fairseq-train trains and logs as ever."""

import json
import re
from pathlib import Path
from typing import Any

import graph_stand_in
import pytest
import torch
from commands_for_tests import Text, succeed, training

from ode_transformer.checkpoints.reading import load_checkpoint

FUSED = ("--optimizer", "fused_adam", "--criterion", "fused_label_smoothed_cross_entropy", "--cuda-graphs")
AT_ONCE = ("--stop-time-hours", 0.0166)  # in its last minute a training waits for no number
TIMES = ("wps", "ups", "wall", "recording_s", "replayed")  # an update that is taken again is a replay
PRECISIONS = {
    "fp16": ("--memory-efficient-fp16", "--fp16-init-scale", 2**16, "--fp16-scale-window", 4),
    "bf16": ("--memory-efficient-bf16",),
    "fp32": (),
}
AGAIN = "both are taken again"

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Joins parameters as on a GPU."""
    graph_stand_in.stand_in(monkeypatch.setattr)


def train(text: Text, folder: Path, *options: object) -> str:
    """Train within two epochs, with two checkpoints and validations; return the log."""
    words = training(text, folder, "ode_transformer_rk2_tiny", 14, *FUSED, *options)
    words = tuple(word for word in words if word != "--disable-validation")
    often = "--log-interval", 3, "--save-interval-updates", 5
    return succeed("train", *words, *often, "--valid-subset", "valid", "--clip-norm", 0.5)


def reports(log: str) -> dict[Any, dict[str, Any]]:
    """Return what fairseq reports, without times, by kind and number of updates."""
    lines = [(kind, json.loads(line)) for kind, line in re.findall(r"\| (train_inner|train|valid) \| (\{.*\})", log)]
    without_times = ((kind, {k: v for k, v in line.items() if not k.endswith(TIMES)}) for kind, line in lines)
    return {(kind, line.get("num_updates", line.get(f"{kind}_num_updates"))): line for kind, line in without_times}


@pytest.mark.parametrize("precision", PRECISIONS)
def test_updates_reports_and_checkpoints_are_fairseqs(text: Text, tmp_path: Path, precision: str) -> None:
    late, at_once = (
        train(text, tmp_path / name, *PRECISIONS[precision], *options)
        for name, options in {"late": (), "at_once": AT_ONCE}.items()
    )
    assert (AGAIN in late, AGAIN in at_once) == (precision == "fp16", False)
    scales = [re.findall(r"setting loss scale to: (\S+)", log) for log in (late, at_once)]
    assert scales[0] == scales[1]
    assert reports(late) == reports(at_once)
    assert {kind for kind, _ in reports(late)} == {"train_inner", "train", "valid"}
    names = [path.name for path in (tmp_path / "late").glob("*_5.pt")]
    for name in (*names, "checkpoint_last.pt"):
        ours, fairseqs = (load_checkpoint(tmp_path / folder / name) for folder in ("late", "at_once"))
        for part in ("model", "last_optimizer_state"):
            torch.testing.assert_close(ours[part], fairseqs[part], rtol=0, atol=0)
        assert ours["extra_state"]["counters"] == fairseqs["extra_state"]["counters"]
        assert ours["optimizer_history"][-1]["num_updates"] == fairseqs["optimizer_history"][-1]["num_updates"]
