"""Parsers that are fuzzed, each with valid inputs to start from.

A parser may raise any exception, which the command prints in one line; it may not hang or end the process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import checkpoint_targets
import corpora_targets
import text_targets


class FuzzTarget(NamedTuple):
    """Parser and the inputs that mutations start from.

    :param seeds: valid inputs
    :param parse: reads an input to its end
    """

    seeds: Sequence[bytes]
    parse: Callable[[bytes], object]


TARGETS: dict[str, FuzzTarget] = {
    name: FuzzTarget(seeds, parse)
    for module in (checkpoint_targets, corpora_targets, text_targets)
    for name, (seeds, parse) in module.TARGETS.items()
}
