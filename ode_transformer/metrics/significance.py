"""Significance of the difference between two systems: paired bootstrap resampling (Koehn 2004), by sacrebleu.

Each sample draws as many lines from the test set as it has, with replacement; all systems are scored on the same
samples:

    mean ± interval of a system's scores over the samples: contains 95% of them
    p = (1 + number of samples in which |difference| − its mean exceeds the observed |difference|) / (1 + samples)

sacrebleu subtracts the mean of |difference|, not of the difference, so that p is about half of a two-sided one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from ode_transformer.support.errors import UserError

CONFIDENCE = 0.95
MAX_DRAWS = 2**26  # lines in all samples; sacrebleu needs about 100 bytes for each


@dataclass(frozen=True)
class BootstrapResult:
    """A system's scores over the samples.

    :param mean: in per cent
    :param interval: half the width of the range of the middle 95%
    :param p_value: of the difference to the baseline; None for the baseline itself
    """

    mean: float
    interval: float
    p_value: float | None
    samples: int
    seed: int

    def __str__(self) -> str:
        p = "" if self.p_value is None else f", p = {self.p_value:.4f}"
        return f"{self.mean:.2f} ± {self.interval:.2f}{p}"


@contextmanager
def _sacrebleu_seed(seed: int) -> Iterator[None]:
    """Set sacrebleu's seed, which it takes from the environment."""
    previous = os.environ.get("SACREBLEU_SEED")
    os.environ["SACREBLEU_SEED"] = str(seed)
    try:
        yield
    finally:
        if previous is None:
            del os.environ["SACREBLEU_SEED"]
        else:
            os.environ["SACREBLEU_SEED"] = previous


def paired_bootstrap(
    metric: Any,
    systems: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    samples: int = 1000,
    seed: int = 12345,
) -> list[BootstrapResult]:
    """Compare each system with the first one.

    :param metric: sacrebleu's BLEU or CHRF
    :param systems: the output lines of each system
    :param references: one or several correct outputs, each as long as the systems' outputs
    :param samples: number of samples
    :param seed: from 1 on; sacrebleu takes 0 for a new seed each time
    :raises UserError: the samples need too much memory
    """
    if samples * len(references[0]) > MAX_DRAWS:
        most = MAX_DRAWS // len(references[0])
        raise UserError(f"--bootstrap-samples {samples}: at most {most} fit into memory for {len(references[0])} lines")
    from sacrebleu.significance import PairedTest

    outputs = [(str(number), system) for number, system in enumerate(systems)]
    with _sacrebleu_seed(seed):
        test = PairedTest(outputs, {"metric": metric}, references, test_type="bs", n_samples=samples)
    _, columns = test()
    results: Any = next(column for name, column in columns.items() if name != "System")
    scores = []
    for result in results:
        # For equal scores, sacrebleu counts the samples with a difference above 0 and would report p = 1/1001.
        p_value = 1.0 if result is not results[0] and result.score == results[0].score else result.p_value
        scores.append(BootstrapResult(float(result.mean), float(result.ci), p_value, samples, seed))
    return scores


def half_interval(values: Sequence[float]) -> float | None:
    """Return half the width of the 95% confidence interval of the mean, by Student's t; None for a single value."""
    if len(values) < 2:
        return None
    from scipy import stats

    return float(stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)) * stdev(values) / len(values) ** 0.5


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
