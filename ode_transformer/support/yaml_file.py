"""YAML files with a schema: every error names file, line and key.

Only what configuration files need is read: mappings, lists, plain values and aliases. Bounds on size, depth and number
of values keep the reading of any file, also a hostile one, well below a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from ode_transformer.support.errors import UserError, shorten
from ode_transformer.support.files import PACKAGE, open_input

# An installed package has the recipes inside it; in a checkout they are beside it.
CONFIGS = PACKAGE / "configs" if (PACKAGE / "configs").is_dir() else PACKAGE.parent / "configs"

MAX_BYTES = 2**18  # of a file
MAX_DEPTH = 30  # of mappings and lists within each other
MAX_VALUES = 20_000  # aliases counted each time
MAX_SCALAR = 100  # characters of a value that is not text
LARGEST_INT = 2**63 - 1

_YAML_TAGS = "tag:yaml.org,2002:"
_SCALAR_TYPES = {"str", "int", "float", "bool", "null", "timestamp"}
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C is absent from a PyYAML built without libyaml


MAX_MESSAGE = 1000  # characters; keys and names of a file can be very long


class YamlSection(BaseModel):
    """A mapping of a YAML file: no unknown keys, no values of another type, immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


Schema = TypeVar("Schema", bound=BaseModel)
Key = tuple[str | int, ...]  # keys of mappings and positions in lists that lead to a value


class YamlFile:
    """The values of a YAML file and their line numbers.

    :raises UserError: the file cannot be read, is no valid YAML, or exceeds a bound
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.line_numbers: dict[Key, int] = {}
        self._value_count = 0
        self._constructor = yaml.SafeLoader("")
        self.values: Any = self._convert(self._compose(self._read_text()), ())

    def _read_text(self) -> str:
        try:
            with open_input(self.path) as file:
                data = file.read(MAX_BYTES + 1)
            if len(data) > MAX_BYTES:
                raise UserError(f"{self.path}: cannot be read as YAML: larger than {MAX_BYTES:,} bytes")
            text = data.decode()
        except OSError as error:
            raise UserError(f"{self.path}: cannot be read as YAML: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise self._syntax_error(data[: error.start].count(b"\n"), "not UTF-8") from error
        if forbidden := yaml.reader.Reader.NON_PRINTABLE.search(text):
            line = text.count("\n", 0, forbidden.start())
            raise self._syntax_error(line, f"the character U+{ord(forbidden[0]):04X} is not allowed")
        return text

    def _compose(self, text: str) -> yaml.Node | None:
        count = depth = 0
        try:
            for event in yaml.parse(text, Loader=_Loader):  # yaml.compose is recursive, so depth is bounded before
                count += isinstance(event, yaml.NodeEvent)
                depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
                if count > MAX_VALUES or depth > MAX_DEPTH:
                    raise self._too_large(event.start_mark)
            return yaml.compose(text, Loader=_Loader)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
            line = None if mark is None else min(mark.line, text.rstrip("\n").count("\n"))  # not after the last line
            raise self._syntax_error(line, str(getattr(error, "problem", None) or error)) from error

    def _syntax_error(self, line: int | None, problem: str) -> UserError:
        position = "" if line is None else f":{line + 1}"
        return UserError(" ".join(f"{self.path}{position}: cannot be read as YAML: {problem}".split()))

    def _too_large(self, mark: Any) -> UserError:
        return self._syntax_error(mark.line, f"more than {MAX_VALUES:,} values or {MAX_DEPTH} levels, aliases included")

    def _convert(self, node: yaml.Node | None, key: Key) -> Any:
        """Return the value of a node and record the line numbers of the values in it."""
        if node is None:  # an empty file
            return None
        self._value_count += 1
        if self._value_count > MAX_VALUES or len(key) > MAX_DEPTH:
            raise self._too_large(node.start_mark)
        if isinstance(node, yaml.ScalarNode):
            return self._convert_scalar(node)
        if node.tag not in (f"{_YAML_TAGS}map", f"{_YAML_TAGS}seq"):
            raise self._unsupported_tag(node)
        if isinstance(node, yaml.SequenceNode):
            for position, entry in enumerate(node.value):
                self.line_numbers[(*key, position)] = entry.start_mark.line + 1
            return [self._convert(entry, (*key, position)) for position, entry in enumerate(node.value)]
        assert isinstance(node, yaml.MappingNode)
        values: dict[Any, Any] = {}
        for name_node, value_node in node.value:
            if not isinstance(name_node, yaml.ScalarNode):
                raise self._syntax_error(name_node.start_mark.line, "a mapping or list cannot be a key")
            name = self._convert_scalar(name_node)
            self.line_numbers[(*key, name)] = name_node.start_mark.line + 1
            if name in values:
                raise self.error((*key, name), "stands here for the second time")
            values[name] = self._convert(value_node, (*key, name))
        return values

    def _convert_scalar(self, node: yaml.ScalarNode) -> Any:
        kind = node.tag.removeprefix(_YAML_TAGS)
        if kind not in _SCALAR_TYPES:
            raise self._unsupported_tag(node)
        if kind == "str":
            if "\0" in node.value:
                raise self._syntax_error(node.start_mark.line, "the character U+0000 is not allowed")
            return node.value
        try:
            if len(node.value) > MAX_SCALAR:
                raise ValueError
            value = self._constructor.construct_object(node)
            if isinstance(value, int) and abs(value) > LARGEST_INT:
                raise ValueError
        except Exception as error:  # the constructors fail in many ways, with KeyError for !!bool and so on
            value = shorten(repr(node.value), 80)
            raise self._syntax_error(node.start_mark.line, f"{value} is no valid {kind}") from error
        return value

    def _unsupported_tag(self, node: yaml.Node) -> UserError:
        if node.tag == f"{_YAML_TAGS}merge":
            return self._syntax_error(node.start_mark.line, "<< is not supported: write the keys out")
        tag = node.tag.replace(_YAML_TAGS, "!!", 1)
        return self._syntax_error(node.start_mark.line, f"the tag {shorten(repr(tag), 80)} is not supported")

    def error(self, key: Key, message: str) -> UserError:
        """Return an error that names the line of a value, or of the nearest value above it that has a line."""
        lines = (self.line_numbers.get(key[:length]) for length in range(len(key), 0, -1))
        line = next(filter(None, lines), None)
        parts = [str(self.path) if line is None else f"{self.path}:{line}", ".".join(map(str, key)), message]
        text = " ".join(": ".join(filter(None, parts)).split())
        return UserError(text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]}...")

    def parse(self, schema: type[Schema]) -> Schema:
        """Return the file's values as an instance of a schema.

        :raises UserError: a key is unknown, missing or has an invalid value; names the first one
        """
        try:
            return schema.model_validate(self.values)
        except ValidationError as error:
            raise self._first_error(error, schema) from error

    def _first_error(self, error: ValidationError, schema: type[BaseModel]) -> UserError:
        if self.values is None:
            return UserError(f"{self.path}: is empty")
        # A misspelt key causes two errors; the unknown key says more than the missing one.
        errors = sorted(error.errors(), key=lambda entry: entry["type"] != "extra_forbidden")
        first, key = errors[0], self._file_key(errors[0])
        if first["type"] == "extra_forbidden":
            return self.error(key, "unknown key" + _allowed_keys(schema, first["loc"]))
        if first["type"] == "missing":
            return self.error((*key, first["loc"][-1]), "is missing")
        if first["type"] == "value_error":
            return self.error(key, first["msg"].removeprefix("Value error, "))
        # Each member of a union of types reports an error of its own.
        messages = [entry["msg"] for entry in errors if self._file_key(entry) == key]
        message = ", or ".join(f"{text[0].lower()}{text[1:]}" for text in messages)
        value = "" if isinstance(first["input"], dict | list) else f"{shorten(repr(first['input']), 80)}: "
        return self.error(key, value + message)

    def _file_key(self, entry: Any) -> Key:
        """Return the location of a pydantic error without the parts that are no keys of the file, such as types."""
        key: Key = ()
        for name in entry["loc"]:
            if (*key, name) in self.line_numbers:
                key = (*key, name)
        return key


def _allowed_keys(schema: type[BaseModel], location: tuple[str | int, ...]) -> str:
    """List the keys allowed beside an unknown one, or return "" if a schema on the way is no simple model."""
    for name in location[:-1]:
        field = schema.model_fields.get(str(name))
        inner = field.annotation if field else None
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return ""
        schema = inner
    names = [field.alias or name for name, field in schema.model_fields.items()]
    return f"; known are {', '.join(sorted(names))}"


def read_yaml(path: Path, schema: type[Schema]) -> Schema:
    """Read a YAML file as an instance of a schema.

    :raises UserError: names file, line and key of the first error
    """
    return YamlFile(path).parse(schema)


def find_config(name: str, folder: Path, names: Sequence[str], kind: str) -> Path:
    """Return the path of a YAML file that is given by its name in a folder, or by its path.

    :param names: the names in the folder, for the error
    :param kind: names the kind of file, such as "recipe", for the error
    :raises UserError: there is no such file
    """
    path = Path(name) if name.endswith(".yaml") else folder / f"{name}.yaml"
    if not path.is_file():
        raise UserError(f"{name}: no such {kind}; there are {', '.join(names)}, or the path of a .yaml file")
    return path
