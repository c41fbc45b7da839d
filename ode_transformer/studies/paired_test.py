"""Paired test of two systems over sentences and seeds.

A difference can come from the test sentences or from the seeds of the trainings. A test over the sentences of one
training ignores the second cause, and one over the means of a few seeds has hardly any power. So both are resampled:

    each sample draws as many sentences and as many seeds as there are, with replacement, the same for both systems;
    a system's score in a sample is the mean over the drawn seeds of its score on the drawn sentences
    interval of the difference: the middle 95% of the samples
    p = (1 + number of samples whose |difference - mean difference| reaches the observed |difference|) / (1 + samples)

Scores are 100 · summed numerators / summed denominators of the sentences: edits by phonemes, wrong words by words. BLEU
is computed from the summed statistics of the sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein

from ode_transformer.studies.results import StudyResults, StudyRun, StudyTable
from ode_transformer.support.errors import UserError
from ode_transformer.support.generate_log import read_generate_log

Statistics = NDArray[np.float64]  # [seeds, sentences, numbers]
Lines = Sequence[str]
SAMPLES = 1000
NOTE = (
    "Difference to the first system; sentences and seeds are drawn together, "
    f"{SAMPLES:,} times. With few seeds the interval is too narrow rather than too wide."
)


@dataclass(frozen=True)
class PairedTest:
    """The difference between two systems.

    :param interval: the middle 95% of the samples
    """

    difference: float
    interval: tuple[float, float]
    p_value: float

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.difference:+.2f} [{low:+.2f}, {high:+.2f}], p = {self.p_value:.3f}"


def sentence_statistics(metric: str, hypotheses: Lines, references: Lines) -> NDArray[np.float64]:
    """Return the numbers of each sentence from which a score of any sample follows, [sentences, numbers].

    :param metric: per, wer or bleu
    :raises UserError: for another metric
    """
    if metric == "bleu":
        from sacrebleu.metrics import BLEU

        bleu = BLEU(tokenize="none", force=True)
        return np.array(bleu._extract_corpus_statistics(list(hypotheses), [list(references)]), dtype=float)
    pairs = [
        (hypothesis.split(), reference.split()) for hypothesis, reference in zip(hypotheses, references, strict=True)
    ]
    if metric == "per":
        return np.array([[Levenshtein.distance(h, r), len(r)] for h, r in pairs], dtype=float)
    if metric == "wer":
        return np.array([[h != r, 1] for h, r in pairs], dtype=float)
    raise UserError(f"no test over sentences and seeds for {metric}: there are per, wer and bleu")


def score_of(metric: str) -> Callable[[NDArray[np.float64]], float]:
    """Return the function from summed statistics to the score."""
    if metric == "bleu":
        from sacrebleu.metrics import BLEU

        bleu = BLEU(tokenize="none", force=True)
        return lambda sums: float(bleu._compute_score_from_stats(sums.tolist()).score)
    return lambda sums: float(100 * sums[0] / sums[1]) if sums[1] else 0.0


def paired_test(
    system: Statistics, baseline: Statistics, metric: str, samples: int = SAMPLES, seed: int = 1
) -> PairedTest:
    """Compare two systems that were trained with the same seeds and decoded the same sentences.

    :param system: statistics of its sentences for each seed
    :param baseline: likewise
    """
    assert system.shape == baseline.shape
    seeds, sentences, _ = system.shape
    score, generator = score_of(metric), np.random.default_rng(seed)

    def difference(drawn_seeds: NDArray[np.int64], counts: NDArray[np.int64]) -> float:
        scores = [
            float(np.mean([score(counts @ statistics[number]) for number in drawn_seeds]))
            for statistics in (system, baseline)
        ]
        return scores[0] - scores[1]

    observed = difference(np.arange(seeds), np.ones(sentences, dtype=np.int64))
    differences = np.array(
        [
            difference(
                np.asarray(generator.integers(seeds, size=seeds)),
                np.bincount(generator.integers(sentences, size=sentences), minlength=sentences),
            )
            for _ in range(samples)
        ]
    )
    extreme = int((np.abs(differences - differences.mean()) >= abs(observed)).sum())
    low, high = np.quantile(differences, [0.025, 0.975])
    return PairedTest(observed, (float(low), float(high)), (1 + extreme) / (1 + samples))


def paired_table(results: StudyResults, metric: str, split: str) -> StudyTable | None:
    """Compare every system with the first one at the same value of the axis, over sentences and seeds.

    :param split: the test set, whose logs of fairseq-generate are read
    :return: None if no system has a seed in common with the first one
    :raises UserError: a log is broken
    """
    axis = [results.study.axis.name] if results.study.axis else []
    rows = []
    for cell in results.cells:
        baseline = results.baseline(cell)
        by_seed = [{run.seed: run for run in results.runs_of(of) if run.folder} for of in (cell, baseline)]
        seeds = sorted(by_seed[0].keys() & by_seed[1].keys())
        if cell == baseline or not seeds:
            continue
        system, first = (np.stack([_run_statistics(runs[seed], metric, split) for seed in seeds]) for runs in by_seed)
        name = [cell.system.name, *([str(cell.value)] if axis else [])]
        rows.append([*name, str(len(seeds)), str(paired_test(system, first, metric))])
    if not rows:
        return None
    heads = ["system", *axis, "seeds", f"{metric}: difference [95%], p"]
    return StudyTable("Paired test over sentences and seeds", [heads, *rows], NOTE)


def _run_statistics(run: StudyRun, metric: str, split: str) -> NDArray[np.float64]:
    assert run.folder is not None
    lines = read_generate_log(run.folder / f"generate.{split}.log")
    return sentence_statistics(metric, [line.hypothesis for line in lines], [line.reference or "" for line in lines])
