"""YAML files that are checked as they are read: what is wrong is named with file, line and key."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from ode_transformer.errors import UserError


class Checked(BaseModel):
    """A part of such a file: no unknown keys, no values of another type, never changed after it is read."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


Part = TypeVar("Part", bound=BaseModel)
Key = tuple[str | int, ...]  # the way to a value: keys of mappings, positions in lists


class Document:
    """The values of a YAML file, and where each stands."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: dict[Key, int] = {}
        try:
            node = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            mark = getattr(error, "problem_mark", None)
            place = f"{path}:{mark.line + 1}" if mark else str(path)
            raise UserError(f"{place}: cannot be read as YAML: {getattr(error, 'problem', None) or error}") from error
        self.values: Any = self._values(node, ())

    def _values(self, node: yaml.Node | None, key: Key) -> Any:
        if isinstance(node, yaml.MappingNode):
            values: dict[Any, Any] = {}
            for name_node, value_node in node.value:
                name = self._scalar(name_node)
                self.lines[(*key, name)] = name_node.start_mark.line + 1
                if name in values:
                    raise self.error((*key, name), "stands here for the second time")
                values[name] = self._values(value_node, (*key, name))
            return values
        if isinstance(node, yaml.SequenceNode):
            for position, entry in enumerate(node.value):
                self.lines[(*key, position)] = entry.start_mark.line + 1
            return [self._values(entry, (*key, position)) for position, entry in enumerate(node.value)]
        return None if node is None else self._scalar(node)

    @staticmethod
    def _scalar(node: yaml.Node) -> Any:
        constructor = yaml.SafeLoader("")
        return constructor.construct_object(node, deep=True)

    def error(self, key: Key, message: str) -> UserError:
        """An error that names the line of a value, or of the nearest that is there above it."""
        known = [key[:length] for length in range(len(key), 0, -1) if key[:length] in self.lines]
        place = f"{self.path}:{self.lines[known[0]]}" if known else str(self.path)
        return UserError(f"{place}: {'.'.join(map(str, key))}: {message}" if key else f"{place}: {message}")

    def as_part(self, kind: type[Part]) -> Part:
        """The whole file as a checked part.

        :raises UserError: names the first key that is unknown, missing or impossible
        """
        try:
            return kind.model_validate(self.values)
        except ValidationError as error:
            raise self._first(error, kind) from error

    def _first(self, error: ValidationError, kind: type[BaseModel]) -> UserError:
        # A misspelt key makes two mistakes, of which the unknown key says more than the missing one.
        found = min(error.errors(), key=lambda entry: entry["type"] != "extra_forbidden")
        # What pydantic adds to the way, such as the name of a union's member, is no key of the file.
        key: Key = ()
        for step in found["loc"]:
            if (*key, step) in self.lines:
                key = (*key, step)
        if found["type"] == "missing":
            key = (*key, found["loc"][-1])
        message = found["msg"].removeprefix("Value error, ")
        if found["type"] == "extra_forbidden":
            message = "unknown key" + _known_beside(kind, found["loc"])
        elif found["type"] == "missing":
            message = "is missing"
        elif not isinstance(found["input"], dict | list) and not found["msg"].startswith("Value error"):
            message = f"{found['input']!r}: {message[0].lower()}{message[1:]}"
        return self.error(key, message)


def _known_beside(kind: type[BaseModel], way: tuple[str | int, ...]) -> str:
    """The keys that may stand where an unknown one does, as far as the models on the way are simple ones."""
    for step in way[:-1]:
        field = kind.model_fields.get(str(step))
        inner = field.annotation if field else None
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return ""
        kind = inner
    names = [field.alias or name for name, field in kind.model_fields.items()]
    return f"; known are {', '.join(sorted(names))}"


def read_yaml(path: Path, kind: type[Part]) -> Part:
    """A YAML file as a checked part.

    :raises UserError: names file, line and key
    """
    return Document(path).as_part(kind)
