"""Is a difference between two systems more than chance? Paired bootstrap resampling (Koehn 2004), by sacrebleu.

The lines of the test set are drawn anew, with repetition, as many times as there are samples; both systems are scored
on the same draws:

    mean ± interval of a system's scores over the draws: 95% of them lie in it
    p: how often the size of the difference on a draw lies above its mean by more than the observed one, once more
       than counted, over the number of draws plus one
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Resampled:
    """A system's scores over the draws.

    :param mean: of them, in per cent
    :param interval: half the width of the range of the middle 95%
    :param p_value: of its difference to the baseline; None for the baseline itself
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
    """sacrebleu takes its seed from the environment."""
    before = os.environ.get("SACREBLEU_SEED")
    os.environ["SACREBLEU_SEED"] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SACREBLEU_SEED"]
        else:
            os.environ["SACREBLEU_SEED"] = before


def paired_bootstrap(
    metric: Any,
    systems: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    samples: int = 1000,
    seed: int = 12345,
) -> list[Resampled]:
    """Compares each system with the first one.

    :param metric: sacrebleu's BLEU or CHRF
    :param systems: the outputs of each
    :param references: one or several right outputs, as many lines each
    :param samples: how many draws
    :param seed: of the draws, from 1 on; sacrebleu's 0 is a new one each time
    """
    from sacrebleu.significance import PairedTest

    named = [(str(number), system) for number, system in enumerate(systems)]
    with _sacrebleu_seed(seed):
        test = PairedTest(named, {"metric": metric}, references, test_type="bs", n_samples=samples)
    _, columns = test()
    results: Any = next(column for name, column in columns.items() if name != "System")
    found = []
    for result in results:
        # Every draw departs by at least nothing; sacrebleu counts those that depart by more, and would say p = 1/1001.
        p_value = 1.0 if result is not results[0] and result.score == results[0].score else result.p_value
        found.append(Resampled(float(result.mean), float(result.ci), p_value, samples, seed))
    return found
