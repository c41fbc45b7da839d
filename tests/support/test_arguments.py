import argparse
from pathlib import Path

import pytest

from ode_transformer.support import arguments


@pytest.mark.parametrize(
    ("kind", "allowed", "refused"),
    [
        (arguments.positive_int, ["1", "007"], ["0", "-1", "1.5", "1e3", "x", ""]),
        (arguments.non_negative_int, ["0", "12"], ["-1", "x"]),
        (arguments.positive_float, ["1e-3", "7"], ["0", "-1", "inf", "nan", "x"]),
        (arguments.finite_float, ["-1", "0"], ["inf", "-inf", "nan", ""]),
        (arguments.probability, ["0", "0.999"], ["1", "-0.1", "nan"]),
        (arguments.whole_numbers, ["1,2,3"], ["x"]),
    ],
)
def test_values(kind, allowed: list[str], refused: list[str]) -> None:
    for text in allowed:
        kind(text)
    for text in refused:
        with pytest.raises(argparse.ArgumentTypeError, match=f"^{text} is not a"):
            kind(text)


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
