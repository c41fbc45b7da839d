"""YAML files with a schema: an error names file and key."""

from pathlib import Path

import pytest

from ode_transformer.support.errors import UserError
from ode_transformer.support.yaml_file import YamlSection, read_yaml


class Inner(YamlSection):
    number: int
    others: list[float] = []


class Outer(YamlSection):
    inner: Inner


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file.yaml"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("inner:\n  numbre: 1", "inner.numbre: Extra inputs are not permitted"),  # rather than that number is missing
        ("inner:\n  others: []", "inner.number: Field required"),
        ("", "Input should be a valid dictionary or instance of Outer"),
    ],
)
def test_an_error_names_file_and_key(path: Path, content: str, message: str) -> None:
    path.write_text("inner: {number: 1, others: [3, 2.5]}")
    assert read_yaml(path, Outer) == Outer(inner=Inner(number=1, others=[3.0, 2.5]))
    path.write_text(content)
    with pytest.raises(UserError) as error:
        read_yaml(path, Outer)
    assert str(error.value) == f"{path}: {message}"
