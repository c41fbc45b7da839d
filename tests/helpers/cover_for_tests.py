"""A small set of combinations in which every pair of parts that can go together does."""

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Combination = dict[str, Any]
DRAWS = 20  # for a pair that does not go with the defaults
TRIES = 4  # values of an axis


def pairs(combination: Combination) -> set[tuple[tuple[str, Any], ...]]:
    return set(itertools.combinations(combination.items(), 2))


def pairwise(axes: Mapping[str, Sequence[Any]], allowed: Callable[[Combination], bool]) -> list[Combination]:
    """Combinations of one value of each axis, all of them allowed.

    Each begins with a pair that is still missing, among defaults (the first values) or, where these do not allow it,
    in a combination that has one of the two already, or among random values; then other axes take values that add
    pairs. A pair is left out only if no beginning was allowed.
    """
    chance = random.Random(0)
    defaults = {name: values[0] for name, values in axes.items()}
    places = {name: place for place, name in enumerate(axes)}
    every = [((a, x), (b, y)) for a, b in itertools.combinations(axes, 2) for x in axes[a] for y in axes[b]]
    missing, cover = set(every), []

    def draw() -> Combination:
        return {n: values[0] if chance.random() < 0.5 else chance.choice(values) for n, values in axes.items()}

    def gain(name: str, value: Any, combination: Combination) -> int:
        """Return how many missing pairs a value adds to a combination."""
        others = [item for item in combination.items() if item[0] != name]
        return sum(tuple(sorted([(name, value), item], key=lambda i: places[i[0]])) in missing for item in others)

    def related(wanted: Combination) -> Iterator[Combination]:
        found = (combination for combination in cover if wanted.items() & combination.items())
        return itertools.islice(found, DRAWS)

    def beginnings(wanted: Combination) -> Iterator[Combination]:
        return itertools.chain([defaults], related(wanted), (draw() for _ in range(DRAWS)))

    ordered = sorted(every, key=repr)
    for wanted, begin in [(pair, beginnings) for pair in ordered] + [(pair, related) for pair in ordered]:
        if wanted not in missing:
            continue
        pair = dict(wanted)
        chosen = next(filter(allowed, (beginning | pair for beginning in begin(pair))), None)
        if chosen is None:
            continue
        for name in chance.sample(list(axes), len(axes)):
            if name in dict(wanted):
                continue
            gains = {value: gain(name, value, chosen) for value in axes[name]}
            better = [value for value in axes[name] if gains[value] > gains[chosen[name]]]
            better = sorted(better, key=lambda value: -gains[value])[:TRIES]
            chosen = next(filter(allowed, ({**chosen, name: value} for value in better)), chosen)
        cover.append(chosen)
        missing -= pairs(chosen)
    return cover
