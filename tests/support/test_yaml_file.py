"""YAML files with a schema, and hostile ones: one line with file and line number, in well under a second."""

import time
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from ode_transformer.support.errors import UserError
from ode_transformer.support.yaml_file import MAX_BYTES, YamlFile, YamlSection, find_config, read_yaml


class Inner(YamlSection):
    number: int
    others: list[float] = []


class Outer(YamlSection):
    inner: Inner
    named: dict[str, Inner] = {}


def write(folder: Path, content: str | bytes) -> Path:
    path = folder / "file.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_values_have_their_types(tmp_path: Path) -> None:
    path = write(tmp_path, "inner: {number: 1, others: [3, 2.5]}")
    assert read_yaml(path, Outer) == Outer(inner=Inner(number=1, others=[3.0, 2.5]))


def test_plain_values_and_aliases(tmp_path: Path) -> None:
    path = write(tmp_path, "a: &x [1, 2.5, true, null, 2026-01-02]\nb: *x\n1: {c: '0x'}\n")
    values = [1, 2.5, True, None, date(2026, 1, 2)]
    assert YamlFile(path).values == {"a": values, "b": values, 1: {"c": "0x"}}


LEVELS = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
CHAIN = "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 2000))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("inner: {number: 1}\nb: 2", ":2: b: unknown key; known are inner, named"),
        ("inner:\n  number: 1\n  z: 3", ":3: inner.z: unknown key; known are number, others"),
        ("inner:\n  number: 1\n  others:\n    - 1\n    - b", ":5: inner.others.1: 'b': input should be a valid number"),
        ("inner:\n  others: []", ":1: inner.number: is missing"),
        ("inner: {number: '1'}", ":1: inner.number: '1': input should be a valid integer"),
        ("inner: {number: 1}\nnamed:\n  x:\n    number: u", ":4: named.x.number: 'u': input should be a valid integer"),
        ("inner: {number: 1}\n\ninner: {number: 2}", ":3: inner: stands here for the second time"),
        ("1: {number: 1}", ": inner: is missing"),
        ("inner: [", ":1: cannot be read as YAML: "),
        ("", ": is empty"),
        ("just a line", ": input should be a valid dictionary"),
        ("a: 1\nb: &b [1, *b]", ":2: cannot be read as YAML: more than 20,000 values or 30 levels"),
        ("a: 1\nb: &b\n  c: *b", ":2: cannot be read as YAML: more than 20,000 values or 30 levels"),
        ("a: 1\nb: " + "[" * 100_000, ":2: cannot be read as YAML: more than 20,000 values or 30 levels"),
        ("{a: " * 50_000, ":1: cannot be read as YAML: more than 20,000 values or 30 levels"),
        ("? " * 50_000, ":1: cannot be read as YAML: more than 20,000 values or 30 levels"),
        ("- " * 50_000, ":1: cannot be read as YAML: more than 20,000 values or 30 levels"),
        ("a: 2026-13-45", ":1: cannot be read as YAML: '2026-13-45' is no valid timestamp"),
        ("a: 1\nb: !!int abc", ":2: cannot be read as YAML: 'abc' is no valid int"),
        ("a: !!int ''", ":1: cannot be read as YAML: '' is no valid int"),
        ("a: !!bool abc", ":1: cannot be read as YAML: 'abc' is no valid bool"),
        ("a: !!timestamp abc", ":1: cannot be read as YAML: 'abc' is no valid timestamp"),
        ("a: 0x_", ":1: cannot be read as YAML: '0x_' is no valid int"),
        (f"a: 1\nb: {'9' * 5000}", ":2: cannot be read as YAML: '9999"),
        ("a: 9223372036854775808", ":1: cannot be read as YAML: '9223372036854775808' is no valid int"),
        ("a: " + ":".join("1" * 50_000), ":1: cannot be read as YAML: '1:1:"),
        ("a: 1\n? [b]\n: 2", ":2: cannot be read as YAML: a mapping or list cannot be a key"),
        ("a: &a {b: 1}\nc:\n  <<: *a", ":3: cannot be read as YAML: << is not supported: write the keys out"),
        ("a: !!python/object/apply:os.system [ls]", ":1: cannot be read as YAML: the tag '!!python/object/apply:os"),
        ("a: !!python/name:os.system x", ":1: cannot be read as YAML: the tag '!!python/name:os.system' is not supp"),
        ("a: !!set {b, c}", ":1: cannot be read as YAML: the tag '!!set' is not supported"),
        ("a: !!binary abc", ":1: cannot be read as YAML: the tag '!!binary' is not supported"),
        ("a: =", ":1: cannot be read as YAML: the tag '!!value' is not supported"),
        ("a: !b c", ":1: cannot be read as YAML: the tag '!b' is not supported"),
        ("a0: &a0 [x]\n" + LEVELS, ":1: cannot be read as YAML: more than 20,000 values"),
        ("a0: &a0 [x]\n" + CHAIN, ": cannot be read as YAML: more than 20,000 values"),
        ("a: *b", ":1: cannot be read as YAML: found undefined alias"),
        ("a: 1\n---\nb: 2", ":2: cannot be read as YAML: but found another document"),
        ('a: 1\nb: "x\\0y"', ":2: cannot be read as YAML: the character U+0000 is not allowed"),
        (b"a: 1\nb: \x00", ":2: cannot be read as YAML: the character U+0000 is not allowed"),
        (b"a: 1\nb: \xff", ":2: cannot be read as YAML: not UTF-8"),
        ("a: b\n" * (MAX_BYTES // 5 + 1), ": cannot be read as YAML: larger than 262,144 bytes"),
        ("- \n" * (MAX_BYTES // 3), ": cannot be read as YAML: more than 20,000 values"),
        ('"a\\nb": 1', ":1: a b: unknown key; known are inner, named"),
        (f"inner: {{number: {'x' * 5000}}}", ":1: inner.number: 'xxxx"),
    ],
)
def test_the_first_error_is_one_line_with_file_line_and_key(tmp_path: Path, content: Any, message: str) -> None:
    path, start = write(tmp_path, content), time.monotonic()
    with pytest.raises(UserError) as raised:
        read_yaml(path, Outer)
    assert time.monotonic() - start < 1
    text = str(raised.value).removeprefix(str(path))
    assert text.startswith(message) or (message.startswith(": ") and message in text)
    assert "\n" not in text
    assert len(text) < 300


def test_a_file_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"file\.yaml: cannot be read as YAML: No such file"):
        read_yaml(tmp_path / "file.yaml", Outer)


def test_a_config_is_found_by_name_or_path(tmp_path: Path) -> None:
    path = write(tmp_path, "")
    assert find_config("file", tmp_path, ["file"], "recipe") == path
    assert find_config(str(path), Path("elsewhere"), [], "recipe") == path
    for name in ("other", "other.yaml", "a\0b", "a\0b.yaml"):
        with pytest.raises(UserError, match="no such recipe; there are file, or the path of a .yaml file"):
            find_config(name, tmp_path, ["file"], "recipe")
