"""The program that docs/python.md shows runs, and its measurements take one batch."""

import re
from pathlib import Path

import pytest
from recorded_commands import ROOT


def test_the_program(untrained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    program = "\n".join(re.findall(r"```python\n(.*?)```", (ROOT / "docs/python.md").read_text(), re.DOTALL))
    monkeypatch.chdir(ROOT)
    names: dict = {}
    exec(program.replace("quickstart/en-de/ode_transformer_normalized_tiny/model", str(untrained.parent)), names)
    out, (words, read) = capsys.readouterr().out, (len(names["target"]), len(names["source"]))
    assert names["logits"].shape[1] == words
    assert f"attention over the source ('target', 'source') torch.Size([{words}, {read}])" in out
    assert f"decoder layer 1 cross-attention torch.Size([2, {words}, {read}])" in out
    assert "encoder layer 2 (0." in out
