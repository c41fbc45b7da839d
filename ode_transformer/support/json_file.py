"""JSON files, which someone may have damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

from ode_transformer.support.errors import UserError
from ode_transformer.support.lines import read_lines

Content = TypeVar("Content", dict, list)


def read_json(path: Path, kind: type[Content]) -> Content:
    """Read a JSON file.

    :param kind: of its content: dict for an object, list for a list
    :raises UserError: the file holds something else
    :raises OSError: it cannot be read
    """
    try:
        content = json.loads("\n".join(read_lines(path)))
    except (RecursionError, ValueError) as error:
        raise UserError(f"{path}: not JSON") from error
    if not isinstance(content, kind):
        raise UserError(f"{path}: not a JSON {'object' if kind is dict else 'list'}")
    return content
