"""YAML files that are checked as they are read: what is wrong is named with file, line and key."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from ode_transformer.support.errors import UserError

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


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
        errors = sorted(error.errors(), key=lambda entry: entry["type"] != "extra_forbidden")
        found, key = errors[0], self._key(errors[0])
        if found["type"] == "extra_forbidden":
            return self.error(key, "unknown key" + _known_beside(kind, found["loc"]))
        if found["type"] == "missing":
            return self.error((*key, found["loc"][-1]), "is missing")
        if found["type"] == "value_error":
            return self.error(key, found["msg"].removeprefix("Value error, "))
        # Where one of several types would do, each of them complains.
        complaints = [entry["msg"] for entry in errors if self._key(entry) == key]
        message = ", or ".join(f"{text[0].lower()}{text[1:]}" for text in complaints)
        value = "" if isinstance(found["input"], dict | list) else f"{found['input']!r}: "
        return self.error(key, value + message)

    def _key(self, entry: Any) -> Key:
        """The way to what pydantic complains of, without what is no key of the file, such as a union's members."""
        key: Key = ()
        for step in entry["loc"]:
            if (*key, step) in self.lines:
                key = (*key, step)
        return key


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


def named_file(name: str, folder: Path, names: Sequence[str], kind: str) -> Path:
    """One of the YAML files of a folder by its name, or any by its path.

    :param names: of those that are there, for an error
    :param kind: what to call them
    :raises UserError: there is no such file
    """
    path = Path(name) if name.endswith(".yaml") else folder / f"{name}.yaml"
    if not path.is_file():
        raise UserError(f"{name}: no such {kind}; there are {', '.join(names)}, or the path of a .yaml file")
    return path
