"""How often a model's most probable token is the right one, by target position and by the token's frequency.

The model is given the right target before each position (teacher forcing); end symbols are tokens like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ode_transformer.analysis.comparison.bucket_tables import Buckets
from ode_transformer.decoding.teacher_forcing import Forced

Counts = tuple[int, int]  # how many were right, of how many


@dataclass
class TokenAccuracy:
    """Counts of right predictions.

    :param positions: target position, from 1 on -> counts
    :param tokens: number of the right token in the dictionary -> counts
    :param loss: summed -log p of the right tokens, in nats
    """

    positions: dict[int, Counts] = field(default_factory=dict)
    tokens: dict[int, Counts] = field(default_factory=dict)
    loss: float = 0.0

    def add(self, forced: Forced) -> None:
        """Counts one batch, without its padding."""
        right, real = forced.predicted.eq(forced.target).numpy(), forced.real.numpy()
        positions = np.broadcast_to(np.arange(1, real.shape[1] + 1), real.shape)
        _count(self.positions, positions[real], right[real])
        _count(self.tokens, forced.target.numpy()[real], right[real])
        self.loss += float(forced.loss[forced.real].double().sum())

    def overall(self) -> Counts:
        return _sum(self.positions.values())

    def by_position(self, buckets: Buckets) -> list[Counts]:
        """Counts in each bucket of positions."""
        return _bucketed(self.positions, {number: number for number in self.positions}, buckets)

    def by_frequency(self, frequencies: Sequence[int], buckets: Buckets) -> list[Counts]:
        """Counts in each bucket of frequencies.

        :param frequencies: how often each token of the dictionary is in the training data
        """
        return _bucketed(self.tokens, {token: frequencies[token] for token in self.tokens}, buckets)


def _count(counts: dict[int, Counts], keys: np.ndarray, right: np.ndarray) -> None:
    totals, rights = np.bincount(keys), np.bincount(keys, weights=right)
    for key in totals.nonzero()[0].tolist():
        before = counts.get(key, (0, 0))
        counts[key] = (before[0] + int(rights[key]), before[1] + int(totals[key]))


def _sum(counts: Iterable[Counts]) -> Counts:
    pairs = list(counts)
    return sum(right for right, _ in pairs), sum(total for _, total in pairs)


def _bucketed(counts: dict[int, Counts], quantity: dict[int, int], buckets: Buckets) -> list[Counts]:
    parts: list[list[Counts]] = [[] for _ in range(len(buckets))]
    for key, pair in counts.items():
        parts[buckets.index(quantity[key])].append(pair)
    return [_sum(part) for part in parts]


def percent(counts: Counts) -> float | None:
    """Accuracy in per cent; None of nothing."""
    right, total = counts
    return 100 * right / total if total else None
