"""Order of a Runge–Kutta scheme by Butcher's conditions (1963).

    order p   ⇔   Σ_i b_i Φ_i(t) = 1 / γ(t)   for all rooted trees t of at most p nodes

    Φ_i([t_1 … t_m]) = Π_k Σ_j a_ij Φ_j(t_k)        γ([t_1 … t_m]) = (number of nodes) · Π_k γ(t_k)

A tree [t_1 … t_m] is a root with the trees t_1 … t_m on it; its nodes are counted with the root.
"""

import math
from collections.abc import Iterator, Sequence
from functools import cache

Tree = tuple["Tree", ...]


@cache
def trees(nodes: int) -> tuple[Tree, ...]:
    """Return all rooted trees with a number of nodes."""
    return tuple(_forests(nodes - 1, nodes - 1))


def _forests(nodes: int, largest: int, count: int | None = None) -> Iterator[Tree]:
    """Yield each set of trees with ``nodes`` nodes together, the largest first.

    :param largest: greatest number of nodes of a tree
    :param count: of the trees with so many nodes, those that may be used; all by default
    """
    if nodes == 0:
        yield ()
    for size in range(min(nodes, largest), 0, -1):
        for number, first in enumerate(trees(size)[: count if size == largest else None]):
            for others in _forests(nodes - size, size, number + 1):
                yield (first, *others)


def _size(tree: Tree) -> int:
    return 1 + sum(map(_size, tree))


def _density(tree: Tree) -> int:
    return _size(tree) * math.prod(map(_density, tree))


def _weights(tree: Tree, a: Sequence[Sequence[float]]) -> list[float]:
    """Return Φ_i for each stage."""
    branches = [_weights(branch, a) for branch in tree]
    return [math.prod(sum(x * phi for x, phi in zip(row, branch, strict=False)) for branch in branches) for row in a]


@cache
def order_of_tableau(a: tuple[tuple[float, ...], ...], b: tuple[float, ...]) -> int:
    """Return the greatest order whose conditions hold, which is at most the number of stages.

    :param a: row i has i entries
    """
    for order in range(1, len(b) + 1):
        for tree in trees(order):
            total = sum(weight * phi for weight, phi in zip(b, _weights(tree, a), strict=True))
            if not math.isclose(total, 1 / _density(tree), abs_tol=1e-9):
                return order - 1
    return len(b)
