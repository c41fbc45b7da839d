from pathlib import Path

import pytest

from ode_transformer.support import arguments


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["runs/rk2/model/model.pt"], ["rk2"]),
        (["runs/rk2/model/model.pt", "runs/rk4/model/model.pt"], ["rk2", "rk4"]),
        (["a/checkpoint1.pt", "Mine=a/checkpoint2.pt"], ["checkpoint1", "Mine"]),
        (["folder"], ["folder"]),
        (["a=b.pt", "lr=1/model.pt"], ["a", "lr=1/model"]),
    ],
)
def test_systems_have_names(words: list[str], names: list[str], tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("folder", "lr=1"):
        (tmp_path / folder).mkdir()
    (tmp_path / "lr=1" / "model.pt").touch()
    assert arguments.system_names([arguments.named_path(word) for word in words]) == names
