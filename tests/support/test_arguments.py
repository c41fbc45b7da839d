import argparse
from pathlib import Path

import pytest

from ode_transformer.support import arguments


@pytest.mark.parametrize("text", ["x", "", "-1", "1.5", "1e3", "²", " 1", "+1"])
def test_what_is_no_whole_number(text: str) -> None:
    for kind, least in ((arguments.positive_int, 1), (arguments.non_negative_int, 0)):
        with pytest.raises(argparse.ArgumentTypeError, match=f"is not a whole number from {least} on"):
            kind(text)


def test_whole_numbers() -> None:
    assert [arguments.positive_int(text) for text in ("1", "007", str(2**31 - 1))] == [1, 7, 2**31 - 1]
    assert arguments.non_negative_int("000") == 0
    with pytest.raises(argparse.ArgumentTypeError, match="0 is not a whole number from 1 on"):
        arguments.positive_int("0")


def test_several_whole_numbers() -> None:
    assert arguments.whole_numbers("3,0,12") == (3, 0, 12)
    for text in ("1,x", "1,", "", "1, 2", "1;2"):
        with pytest.raises(argparse.ArgumentTypeError, match=f"^{text}: expected whole numbers divided by commas"):
            arguments.whole_numbers(text)
    with pytest.raises(argparse.ArgumentTypeError, match="^1,2,01: a number stands twice"):
        arguments.whole_numbers("1,2,01")


@pytest.mark.parametrize("text", [str(2**31), "1" + 21 * "0", 5000 * "9"])
def test_a_whole_number_that_is_too_large(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=" is too large: at most 2147483647 is allowed") as raised:
        arguments.positive_int(text)
    assert len(str(raised.value)) < 120


@pytest.mark.parametrize(
    ("kind", "allowed", "refused"),
    [
        (arguments.positive_float, ["1e-3", "7"], ["0", "-1", "inf", "nan", "x"]),
        (arguments.finite_float, ["-1", "0"], ["inf", "-inf", "nan", ""]),
        (arguments.waiting_time, ["0.5", "9223372036"], ["0", "-1", "9223372037", "1e300", "inf", "nan"]),
        (arguments.non_negative_float, ["0", "2.5"], ["-0.1", "inf", "nan", "x"]),
        (arguments.probability, ["0", "0.999"], ["1", "-0.1", "nan"]),
        (arguments.length_penalty, ["-100", "0.6", "100"], ["101", "nan"]),
        (arguments.language_code, ["de"], ["DE", "deu", "d1", "ﬁ"]),
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
