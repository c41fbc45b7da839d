"""Significance of the difference between systems: over the sentences of a test set, and over the seeds of a training.

Over sentences by paired bootstrap resampling (Koehn 2004): each draw takes as many sentences as the test set has, with
replacement, the same for all systems. A small p says that these trainings differ, not that the next ones would:

    interval = the middle 95% of the drawn differences
    p = (1 + number of draws whose |difference − mean drawn difference| reaches |difference|) / (1 + draws)

Over seeds by Dunnett's test (1955) of all systems against one reference, by scipy. The variance is that of all systems
together, p is adjusted for their number, and the 95% intervals hold for all of them at once:

    different    adjusted p < 0.05
    equivalent   the simultaneous 90% interval lies within the margin: two one-sided tests (Schuirmann 1987)
    undecided    neither

Perplexities are compared by their logarithms, and their differences are in per cent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import expm1, log
from statistics import fmean, mean, stdev

import numpy as np
from numpy.typing import NDArray

from ode_transformer.lab.metrics.metric import SentenceStatistics

CONFIDENCE = 0.95
SAMPLES = 10_000
SEED = 12345
# Differences that do not matter, by the first word of a score's title: perplexity as a factor.
MARGINS = {"perplexity": 1.02, "bleu": 0.5, "sacrebleu": 0.5, "per": 0.5, "wer": 0.5}


@dataclass(frozen=True)
class PairedDifference:
    """The difference of two systems over sentences.

    :param interval: the middle 95% of the draws
    """

    value: float
    interval: tuple[float, float]
    p_value: float

    def __str__(self) -> str:
        return f"{self.value:+.2f} {interval_text(self.interval)}, p = {self.p_value:.4f}"


@dataclass(frozen=True)
class BootstrapResult:
    """A system's scores over the draws.

    :param mean: in the unit of the score
    :param interval: half the width of the range of the middle 95%
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


def drawn_scores(runs: Sequence[SentenceStatistics], samples: int = SAMPLES, seed: int = SEED) -> NDArray[np.float64]:
    """Return the mean score of a system's runs on the test set and on each draw of its sentences, [1 + samples].

    :param runs: of the same sentences; other systems with as many sentences get the same draws
    """
    generator, sentences = np.random.default_rng(seed), len(runs[0].numbers)
    counts = np.ones(sentences, dtype=np.int64)
    scores = []
    for _ in range(1 + samples):
        scores.append(fmean(run.score(counts @ run.numbers).value for run in runs))
        counts = np.bincount(generator.integers(sentences, size=sentences), minlength=sentences)
    return np.array(scores)


def paired_difference(system: NDArray[np.float64], reference: NDArray[np.float64]) -> PairedDifference:
    """Compare the ``drawn_scores`` of two systems."""
    (value, *_), drawn = system - reference, (system - reference)[1:]
    extreme = int((np.abs(drawn - drawn.mean()) >= abs(value)).sum())
    return PairedDifference(float(value), _middle(drawn), (1 + extreme) / (1 + len(drawn)))


def paired_bootstrap(
    systems: Sequence[Sequence[SentenceStatistics]], samples: int = SAMPLES, seed: int = SEED
) -> list[BootstrapResult]:
    """Compare each system with the first one over sentences.

    :param systems: for each system the statistics of each of its runs, of the same sentences
    """
    drawn = [drawn_scores(runs, samples, seed) for runs in systems]
    results = []
    for number, scores in enumerate(drawn):
        low, high = _middle(scores[1:])
        difference = paired_difference(scores, drawn[0]) if number else None
        results.append(BootstrapResult(float(scores[1:].mean()), (high - low) / 2, difference, samples, seed))
    return results


def _middle(values: NDArray[np.float64]) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


@dataclass(frozen=True)
class Comparison:
    """The difference of a system to a reference over seeds.

    :param value: difference of the means, in per cent if ``unit`` is %
    :param interval: simultaneous, 95%; None where the system or the reference has a single seed
    :param p_value: adjusted for the number of systems
    :param verdict: different, equivalent or undecided; empty without a test
    """

    value: float
    unit: str = ""
    interval: tuple[float, float] | None = None
    p_value: float | None = None
    verdict: str = ""

    def text(self, with_interval: bool = True) -> str:
        """Return the difference with its interval, adjusted p and verdict; without a test the difference alone."""
        text = f"{self.value:+.2f}{self.unit}"
        if self.interval is None or self.p_value is None:
            return text
        interval = f" {interval_text(self.interval)}" if with_interval else ""
        return f"{text}{interval}, p {'< 0.001' if self.p_value < 0.001 else f'= {self.p_value:.3f}'}: {self.verdict}"

    def __str__(self) -> str:
        return self.text()


def compare_systems(scores: Mapping[str, Sequence[float]], reference: str, title: str) -> dict[str, Comparison]:
    """Compare all systems with one of them over seeds, by Dunnett's test.

    :param scores: a score for each seed, by system; those with a single seed are not tested
    :param title: of the score, which names its margin
    """
    from scipy import stats

    kind = title.lower().split()[0]
    logarithms, margin = kind == "perplexity", MARGINS.get(kind)
    values = {name: np.log(of_system) if logarithms else np.array(of_system) for name, of_system in scores.items()}
    if logarithms and margin:
        margin = log(margin)
    control = values.pop(reference)

    def in_unit(shift: float) -> float:
        return 100 * expm1(shift) if logarithms else float(shift)

    compared = {
        name: Comparison(in_unit(of_system.mean() - control.mean()), "%" if logarithms else "")
        for name, of_system in values.items()
    }
    tested = [name for name, of_system in values.items() if min(len(of_system), len(control)) > 1]
    groups = [values[name] for name in tested]
    if not groups or not any(group.std() for group in (control, *groups)):  # no variance, no test
        return compared
    test = stats.dunnett(*groups, control=control, rng=np.random.default_rng(SEED))
    sizes = len(control), *map(len, groups)
    freedom = sum(sizes) - len(sizes)
    spread = float(sum(group.var() * len(group) for group in (control, *groups)) / freedom) ** 0.5
    errors = [spread * (1 / len(group) + 1 / len(control)) ** 0.5 for group in groups]

    def reach(level: float) -> float:
        """Return how many standard errors the simultaneous intervals reach."""
        if (level, sizes) not in _reaches:
            for each in (CONFIDENCE, level):  # in this order, always from the same random numbers
                interval = test.confidence_interval(each)
                _reaches[each, sizes] = float(interval.high[0] - interval.low[0]) / 2 / errors[0]
        return _reaches[level, sizes]

    alone = stats.t.ppf(CONFIDENCE, freedom)  # how far the 90% interval of a single comparison reaches, which is less
    for name, group, error, p in zip(tested, groups, errors, map(float, test.pvalue), strict=True):
        difference = group.mean() - control.mean()
        verdict = "different" if p < 1 - CONFIDENCE else "undecided"
        if verdict == "undecided" and margin is not None:
            room = (margin - abs(difference)) / error
            if alone < room and reach(2 * CONFIDENCE - 1) < room:
                verdict = "equivalent"
        wide = reach(CONFIDENCE) * error
        interval = in_unit(difference - wide), in_unit(difference + wide)
        compared[name] = Comparison(compared[name].value, compared[name].unit, interval, p, verdict)
    return compared


# By level and sizes of the groups: the search for one takes longer than the test, and no score changes it.
_reaches: dict[tuple[float, tuple[int, ...]], float] = {}


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


def interval_text(interval: tuple[float, float]) -> str:
    low, high = interval
    return f"[{low:+.2f}, {high:+.2f}]"
