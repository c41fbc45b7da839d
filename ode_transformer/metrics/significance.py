"""Significance of the difference between two systems, over sentences and seeds.

Sentences by paired bootstrap resampling (Koehn 2004): each sample draws as many as the test set has, with replacement,
and all systems are scored on the same draws. Seeds by Welch's t: there are two or three of them, and drawn with
replacement they would seem to vary less than they do:

    shift = difference of the mean scores of the seeds on the drawn sentences
    error² = (s₁² + s₂²) / n, s the standard deviation of a system's n scores on the drawn sentences
    sample = shift + t · error, t drawn from Student's distribution with Welch's degrees of freedom
    interval = the middle 95% of the samples
    p = (1 + samples · fraction of those whose |sample − mean shift| reaches the observed |difference|) / (1 + samples)

With one seed for each system this is the usual test over sentences; without any difference between sentences it is
Welch's test over seeds. A test over the sentences of one training ignores that the next one would differ, and one over
the means of seeds that the next text would. Where both count, the test is conservative, because what differs
between seeds on some sentences only is counted twice, in s and in the drawn sentences.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean, stdev

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
SAMPLES = 1000
SEED = 12345
T_DRAWS = 100  # for each draw of sentences, so that chance moves the interval of few seeds little
Sums = NDArray[np.float64]


@dataclass(frozen=True)
class SentenceStatistics:
    """Numbers of each sentence, such as errors, whose sums give the score of any selection of sentences.

    :param numbers: [sentences, numbers]
    :param score: from the sums, [numbers], to the score
    """

    numbers: NDArray[np.float64]
    score: Callable[[Sums], float]


@dataclass(frozen=True)
class PairedDifference:
    """The difference of a system to the first one.

    :param interval: the middle 95% of the samples
    """

    value: float
    interval: tuple[float, float]
    p_value: float

    def __str__(self) -> str:
        return f"{self.value:+.2f} {interval_text(self.interval)}, p = {self.p_value:.3f}"


@dataclass(frozen=True)
class BootstrapResult:
    """A system's scores over the samples.

    :param mean: in the unit of the score
    :param interval: half the width of the range of the middle 95%; of several seeds with their chance
    :param difference: to the first system; None for the first itself
    """

    mean: float
    interval: float
    difference: PairedDifference | None
    samples: int
    seed: int

    def __str__(self) -> str:
        difference = "" if self.difference is None else f", difference {self.difference}"
        return f"{self.mean:.2f} ± {self.interval:.2f}{difference}"


def paired_bootstrap(
    systems: Sequence[Sequence[SentenceStatistics]], samples: int = SAMPLES, seed: int = SEED
) -> list[BootstrapResult]:
    """Compare each system with the first one.

    :param systems: for each system the statistics of each of its seeds, as many for all, of the same sentences
    :param samples: number of samples
    :param seed: of the draws
    """
    score, seeds = systems[0][0].score, len(systems[0])
    numbers = [np.stack([of_seed.numbers for of_seed in system]) for system in systems]  # [seeds, sentences, numbers]
    sentences = len(numbers[0][0])
    generator = np.random.default_rng(seed)

    def scores(counts: NDArray[np.int64]) -> list[list[float]]:
        return [[score(counts @ system[number]) for number in range(seeds)] for system in numbers]

    observed = np.mean(scores(np.ones(sentences, dtype=np.int64)), axis=1)
    drawn = np.array(
        [
            scores(np.bincount(generator.integers(sentences, size=sentences), minlength=sentences))
            for _ in range(samples)
        ]
    )  # [samples, systems, seeds]
    means = drawn.mean(axis=2)

    results = []
    for number, value in enumerate(observed - observed[0]):
        low, high = _middle(means[:, [number]] + _seed_errors(generator, drawn[:, [number]]))
        difference = None
        if number:
            shifts = means[:, [number]] - means[:, [0]]
            differences = shifts + _seed_errors(generator, drawn[:, [0, number]])
            extreme = samples * float((np.abs(differences - shifts.mean()) >= abs(value)).mean())
            difference = PairedDifference(float(value), _middle(differences), (1 + extreme) / (1 + samples))
        results.append(BootstrapResult(float(means[:, number].mean()), (high - low) / 2, difference, samples, seed))
    return results


def _seed_errors(generator: np.random.Generator, scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Draw, for each sample, how far a mean over seeds, or the difference of two, is off because the seeds are few.

    :param scores: [samples, one or two systems, seeds]
    :return: [samples, draws]; zeros for one seed, whose spread is not known
    """
    samples, _, seeds = scores.shape
    if seeds == 1:
        return np.zeros((samples, 1))
    squares = scores.var(axis=2, ddof=1) / seeds
    square = squares.sum(axis=1, keepdims=True)
    # Welch's degrees of freedom; without any spread their number does not matter.
    freedom = (seeds - 1) * square**2 / np.maximum((squares**2).sum(axis=1, keepdims=True), np.finfo(float).tiny)
    return generator.standard_t(np.maximum(freedom, 1), size=(samples, T_DRAWS)) * np.sqrt(square)


def _middle(values: NDArray[np.float64]) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def half_interval(values: Sequence[float]) -> float | None:
    """Return half the width of the 95% confidence interval of the mean, by Student's t; None for a single value."""
    if len(values) < 2:
        return None
    from scipy import stats

    return float(stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)) * stdev(values) / len(values) ** 0.5


def mean_text(values: Sequence[float]) -> str:
    """Return the mean ± standard deviation as text; empty without values."""
    if not values:
        return ""
    return f"{mean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")


def difference_text(values: Sequence[float], baseline: Sequence[float]) -> str:
    """Return :func:`difference` as text, the interval in brackets."""
    shift, interval = difference(values, baseline)
    return f"{shift:+.2f}" + (f" {interval_text(interval)}" if interval else "")


def interval_text(interval: tuple[float, float]) -> str:
    """Return the bounds of a difference in brackets."""
    low, high = interval
    return f"[{low:+.2f}, {high:+.2f}]"


def difference(values: Sequence[float], baseline: Sequence[float]) -> tuple[float, tuple[float, float] | None]:
    """Return the difference of the means and its 95% confidence interval, by Welch's t.

    The interval is None if either sample has a single value, or neither varies.
    """
    shift = mean(values) - mean(baseline)
    if min(len(values), len(baseline)) < 2 or not (stdev(values) or stdev(baseline)):
        return shift, None
    from scipy import stats

    interval = stats.ttest_ind(values, baseline, equal_var=False).confidence_interval(CONFIDENCE)
    return shift, (float(interval.low), float(interval.high))
