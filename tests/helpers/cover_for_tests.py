"""A small set of combinations in which every pair of parts that can go together does."""

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Combination = dict[str, Any]
DRAWS = 60


def pairs(combination: Combination) -> set[tuple[tuple[str, Any], ...]]:
    return set(itertools.combinations(combination.items(), 2))


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

    every = [((a, x), (b, y)) for a, b in itertools.combinations(axes, 2) for x in axes[a] for y in axes[b]]
    missing, cover = set(every), []
    for wanted in sorted(every, key=repr):
        if wanted in missing:
            drawn = [draw(defaults=bool(number % 2)) | dict(wanted) for number in range(DRAWS)]
            drawn.sort(key=lambda combination: -len(pairs(combination) & missing))
            chosen = next(filter(allowed, drawn), {})
            cover += [chosen] if chosen else []
            missing -= {wanted} | pairs(chosen)
    return cover
