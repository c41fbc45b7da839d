"""Accuracy of a model's most probable token, by target position and by the token's frequency.

Every prediction is made after the right target tokens (teacher forcing); end symbols are tokens like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ode_transformer.analysis.comparison.bucket_tables import Buckets
from ode_transformer.decoding.teacher_forcing import TokenPredictions

Counts = tuple[int, int]  # right predictions, all predictions


@dataclass
class TokenAccuracy:
    """Counts of right predictions.

    :param positions: target position, from 1 on -> counts
    :param tokens: index of the right token in the dictionary -> counts
    :param loss: sum of -log p of the right tokens, in nats
    """

    positions: dict[int, Counts] = field(default_factory=dict)
    tokens: dict[int, Counts] = field(default_factory=dict)
    loss: float = 0.0

    def add(self, forced: TokenPredictions) -> None:
        """Count one batch, without its padding."""
        right, real = forced.predicted.eq(forced.target).numpy(), forced.real.numpy()
        positions = np.broadcast_to(np.arange(1, real.shape[1] + 1), real.shape)
        _add_counts(self.positions, positions[real], right[real])
        _add_counts(self.tokens, forced.target.numpy()[real], right[real])
        self.loss += float(forced.loss[forced.real].double().sum())

    def overall(self) -> Counts:
        """Return the counts of all tokens."""
        return _total(self.positions.values())

    def by_position(self, buckets: Buckets) -> list[Counts]:
        """Return the counts of each bucket of positions."""
        return _bucket_totals(self.positions, {position: position for position in self.positions}, buckets)

    def by_frequency(self, frequencies: Sequence[int], buckets: Buckets) -> list[Counts]:
        """Return the counts of each bucket of frequencies.

        :param frequencies: frequency of each token of the dictionary in the training data
        """
        return _bucket_totals(self.tokens, {token: frequencies[token] for token in self.tokens}, buckets)


def _add_counts(counts: dict[int, Counts], keys: np.ndarray, right: np.ndarray) -> None:
    totals, rights = np.bincount(keys), np.bincount(keys, weights=right)
    for key in totals.nonzero()[0].tolist():
        old_right, old_total = counts.get(key, (0, 0))
        counts[key] = (old_right + int(rights[key]), old_total + int(totals[key]))


def _total(counts: Iterable[Counts]) -> Counts:
    pairs = list(counts)
    return sum(right for right, _ in pairs), sum(total for _, total in pairs)


def _bucket_totals(counts: Mapping[int, Counts], quantity: Mapping[int, int], buckets: Buckets) -> list[Counts]:
    """Sum the counts whose key has its quantity in a bucket, for each bucket."""
    pairs_by_bucket: list[list[Counts]] = [[] for _ in range(len(buckets))]
    for key, pair in counts.items():
        pairs_by_bucket[buckets.index(quantity[key])].append(pair)
    return [_total(pairs) for pairs in pairs_by_bucket]


def percent(counts: Counts) -> float | None:
    """Return the accuracy in per cent; None without any prediction."""
    right, total = counts
    return 100 * right / total if total else None
