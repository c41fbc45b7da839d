"""Tests that every hyper-parameter in ``configs/`` names its source in a comment, as docs/recipes.md describes."""

import re

import pytest
import yaml

from ode_transformer.support.yaml_file import CONFIGS

# Not hyper-parameters: names, files, and results, whose source is their table.
OTHER_KEYS = re.compile(
    r"(title|arch|task|expected|(preparations\.\w+\.)?corpus\.(kind|source|target|train|valid|test|references|packages|raw))"
    r"(\.|$)"
)
FILES = sorted(path for path in CONFIGS.glob("*.yaml") if path.stem != "sources")
RECIPES_PAGE = CONFIGS.parent / "docs" / "recipes.md"


def source_names():
    """Return the names of sources in the page's table."""
    section = RECIPES_PAGE.read_text().partition("## Sources of values\n")[2].partition("\n## ")[0]
    names = re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE)
    return re.findall(r"`([^`]+)`", " ".join(names))


def lines_of_keys(node, key=()):
    """Return the line numbers of all values by their keys."""
    if isinstance(node, yaml.MappingNode):
        entries = [(name.value, name, value) for name, value in node.value]
    else:
        entries = [(position, value, value) for position, value in enumerate(node.value)]
    lines = {}
    for name, start, value in entries:
        lines[(*key, name)] = start.start_mark.line + 1
        if isinstance(value, yaml.CollectionNode):
            lines |= lines_of_keys(value, (*key, name))
    return lines


def leaves(value, key=()):
    """Yield the keys of plain values; lists of plain values are values themselves."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, (*key, name))
    elif isinstance(value, list) and any(isinstance(entry, dict) for entry in value):
        for position, entry in enumerate(value):
            yield from leaves(entry, (*key, position))
    else:
        yield key


def without_source(path):
    """Return "line: key" of each value without a source.

    A source stands at the end of the value's line. Only "ours: reason" may stand at a section instead.
    """
    text = path.read_text()
    numbers, lines = lines_of_keys(yaml.compose(text)), text.splitlines()
    source = re.compile(rf"({'|'.join(map(re.escape, source_names()))}), \S|ours: \S")

    def comment(key):
        return lines[numbers[key] - 1].partition(" # ")[2]

    return [
        f"{numbers[key]}: {'.'.join(map(str, key))}"
        for key in leaves(yaml.safe_load(text))
        if not OTHER_KEYS.match(".".join(map(str, key)))
        and not source.match(comment(key))
        and not any(comment(key[:length]).startswith("ours: ") for length in range(1, len(key)))
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_value_names_its_source(path):
    assert without_source(path) == []
