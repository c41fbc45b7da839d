"""A small set of combinations in which every pair of parts that can go together does."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Combination = dict[str, Any]


def pairs(combination: Mapping[str, Any]) -> set[frozenset[tuple[str, Any]]]:
    return {frozenset(pair) for pair in itertools.combinations(combination.items(), 2)}


def pairwise(axes: Mapping[str, Sequence[Any]], allowed: Callable[[Combination], bool]) -> list[Combination]:
    """Combinations of one value of each axis, all of them allowed.

    A pair of values is left out only if no combination drawn with it was allowed. Every second draw takes the first
    value of half of the axes, the default, because few combinations of many other values are allowed.
    """
    chance = random.Random(0)

    def draw(defaults: bool) -> Combination:
        return {
            n: values[0] if defaults and chance.random() < 0.5 else chance.choice(values) for n, values in axes.items()
        }

    missing = set().union(
        *({frozenset({(a, x), (b, y)}) for x in axes[a] for y in axes[b]} for a, b in itertools.combinations(axes, 2))
    )
    cover = []
    while missing:
        wanted = min(missing, key=lambda pair: sorted(map(repr, pair)))
        drawn = [draw(defaults=bool(number % 2)) | dict(wanted) for number in range(120)]
        good = [combination for combination in drawn if allowed(combination)]
        if good:
            cover.append(max(good, key=lambda combination: len(pairs(combination) & missing)))
            missing -= pairs(cover[-1])
        missing.discard(wanted)
    return cover
