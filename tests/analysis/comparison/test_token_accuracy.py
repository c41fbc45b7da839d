"""Accuracy of single tokens against a loop over them."""

import torch

from ode_transformer.analysis.comparison.bucket_tables import Buckets
from ode_transformer.analysis.comparison.token_accuracy import TokenAccuracy, percent
from ode_transformer.decoding.teacher_forcing import TokenPredictions

PAD, VOCABULARY = 1, 12


def batch(lengths: list[int], seed: int) -> TokenPredictions:
    """Return random targets and predictions; both have padding at the same positions."""
    generator = torch.Generator().manual_seed(seed)
    shape = (len(lengths), max(lengths))
    target = torch.randint(2, VOCABULARY, shape, generator=generator)
    guess = torch.randint(2, VOCABULARY, shape, generator=generator)
    predicted = torch.where(torch.rand(shape, generator=generator) < 0.5, target, guess)
    loss = torch.rand(shape, generator=generator)
    for row, length in enumerate(lengths):
        target[row, length:] = predicted[row, length:] = PAD
    return TokenPredictions(torch.arange(len(lengths)), target, predicted, loss, target.ne(PAD))


def test_counts_are_those_of_a_loop() -> None:
    batches = [batch([3, 7, 1], 1), batch([5, 5], 2), batch([12], 3)]
    counted = TokenAccuracy()
    for forced in batches:
        counted.add(forced)
    frequencies = [3 * token**3 for token in range(VOCABULARY)]
    positions, rare = Buckets((2, 4, 6)), Buckets((0, 99, 999), start=0)
    expected_positions, expected_rare = [[0, 0] for _ in range(4)], [[0, 0] for _ in range(4)]
    right, total, loss = 0, 0, 0.0
    for forced in batches:
        for row in range(len(forced.target)):
            for position in range(forced.target.size(1)):
                token = int(forced.target[row, position])
                if token == PAD:
                    continue
                hit = int(forced.predicted[row, position]) == token
                bucket = 0 if position + 1 <= 2 else 1 if position + 1 <= 4 else 2 if position + 1 <= 6 else 3
                of_frequency = 0 if frequencies[token] == 0 else 1 if frequencies[token] < 100 else 2
                of_frequency = 3 if frequencies[token] >= 1000 else of_frequency
                for counts in (expected_positions[bucket], expected_rare[of_frequency]):
                    counts[0] += hit
                    counts[1] += 1
                right, total, loss = right + hit, total + 1, loss + float(forced.loss[row, position])
    assert total == 3 + 7 + 1 + 5 + 5 + 12
    assert counted.overall() == (right, total)
    assert 0 < right < total
    assert counted.by_position(positions) == [tuple(pair) for pair in expected_positions]
    assert counted.by_frequency(frequencies, rare) == [tuple(pair) for pair in expected_rare]
    assert abs(counted.loss - loss) < 1e-5
    assert PAD not in counted.tokens


def test_per_cent() -> None:
    assert percent((1, 4)) == 25
    assert percent((0, 0)) is None
