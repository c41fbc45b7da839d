"""YAML files that are checked as they are read."""

from pathlib import Path

import pytest

from ode_transformer.support.errors import UserError
from ode_transformer.support.schema import Checked, read_yaml


class Inner(Checked):
    number: int
    others: list[float] = []


class Outer(Checked):
    inner: Inner
    named: dict[str, Inner] = {}


@pytest.fixture
def read(tmp_path: Path):
    def read_text(text: str) -> Outer:
        path = tmp_path / "file.yaml"
        path.write_text(text)
        return read_yaml(path, Outer)

    return read_text


def test_values_have_their_types(read) -> None:
    assert read("inner: {number: 1, others: [3, 2.5]}") == Outer(inner=Inner(number=1, others=[3.0, 2.5]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("inner: {number: 1}\nb: 2", "2: b: unknown key; known are inner, named"),
        ("inner:\n  number: 1\n  z: 3", "3: inner.z: unknown key; known are number, others"),
        ("inner:\n  number: 1\n  others:\n    - 1\n    - b", "5: inner.others.1: 'b': input should be a valid number"),
        ("inner:\n  others: []", "1: inner.number: is missing"),
        ("inner: {number: '1'}", "1: inner.number: '1': input should be a valid integer"),
        ("inner: {number: 1}\nnamed:\n  x:\n    number: u", "4: named.x.number: 'u': input should be a valid integer"),
        ("inner: {number: 1}\n\ninner: {number: 2}", "3: inner: stands here for the second time"),
        ("inner: [", "1: cannot be read as YAML: "),
        ("", ": input should be a valid dictionary"),
        ("just a line", ": input should be a valid dictionary"),
    ],
)
def test_the_first_mistake_is_named_with_file_line_and_key(read, tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError) as raised:
        read(text)
    start, said = str(tmp_path / "file.yaml"), str(raised.value)
    assert said.startswith(start)
    assert message in said.removeprefix(f"{start}:") or message in said
    assert "\n" not in said


@pytest.mark.parametrize("text", [None, b"\xff"])
def test_a_file_that_cannot_be_read(tmp_path: Path, text: bytes | None) -> None:
    path = tmp_path / "file.yaml"
    if text:
        path.write_bytes(text)
    with pytest.raises(UserError, match=r"file\.yaml: cannot be read as YAML"):
        read_yaml(path, Outer)
