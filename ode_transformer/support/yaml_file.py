"""YAML files with a schema: an error names file and key."""

import os
from collections.abc import Sequence
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from ode_transformer.support.errors import UserError
from ode_transformer.support.files import PACKAGE

# An installed package has the recipes inside it; in a checkout they are beside it.
CONFIGS = PACKAGE / "configs" if (PACKAGE / "configs").is_dir() else PACKAGE.parent / "configs"

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C is absent from a PyYAML built without libyaml


class YamlSection(BaseModel):
    """A mapping of a YAML file: no unknown keys, no values of another type, immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


Schema = TypeVar("Schema", bound=BaseModel)


@lru_cache
def _parse(path: Path, text: bytes) -> Any:
    """Parse the text of a file once, because all systems of a table read the same recipe; errors name the file."""
    stream = BytesIO(text)
    stream.name = str(path)
    return yaml.load(stream, _Loader)


def read_yaml(path: Path, schema: type[Schema]) -> Schema:
    """Read a YAML file as an instance of a schema.

    :raises UserError: a key is unknown, missing or has an invalid value
    """
    try:
        return schema.model_validate(_parse(path, path.read_bytes()))
    except ValidationError as error:
        # A misspelt key causes two errors; the unknown key says more than the missing one.
        first = min(error.errors(), key=lambda entry: entry["type"] != "extra_forbidden")
        key = ".".join(map(str, first["loc"]))
        message = first["msg"].removeprefix("Value error, ")
        raise UserError(": ".join(filter(None, [str(path), key, message]))) from error


def find_config(name: str, folder: Path, names: Sequence[str], kind: str) -> Path:
    """Return the path of a YAML file that is given by one of its names in a folder, or by its path."""
    path = Path(name) if name.endswith(".yaml") else folder / f"{name}.yaml"
    if not path.is_file():
        raise UserError(f"{name}: no such {kind}; there are {', '.join(names)}, or the path of a .yaml file")
    return path


def owner_name(file: Path, folder: Path) -> str:
    """Return what tells a YAML file from others of its name: its path relative to a folder, or the name of one of ours.

    File and folder can be moved together.
    """
    is_ours = CONFIGS.resolve() in file.resolve().parents
    return file.stem if is_ours else os.path.relpath(file.resolve(), folder.resolve())
