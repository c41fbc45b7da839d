"""The metrics of the GLUE benchmark, in per cent (Macaron Net, Lu et al. 2019, B.3; Table 2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef


def matthews(predictions: Sequence[str], labels: Sequence[str]) -> float:
    """Return Matthews correlation coefficient; 0 if all predictions are one class."""
    return 100 * float(matthews_corrcoef(labels, predictions))


def accuracy(predictions: Sequence[str], labels: Sequence[str]) -> float:
    """Return the share of correct predictions."""
    return 100 * float(accuracy_score(labels, predictions))


def f1(predictions: Sequence[str], labels: Sequence[str]) -> float:
    """Return F1 of the class called 1."""
    return 100 * float(f1_score(labels, predictions, pos_label="1", zero_division=0.0))


def pearson(predictions: Sequence[float], labels: Sequence[float]) -> float:
    """Return the linear correlation; 0 where all predictions are equal and it is not defined."""
    return 0.0 if _constant(predictions) else 100 * float(pearsonr(predictions, labels)[0])


def spearman(predictions: Sequence[float], labels: Sequence[float]) -> float:
    """Return the correlation of the ranks; 0 where all predictions are equal and it is not defined."""
    return 0.0 if _constant(predictions) else 100 * float(spearmanr(predictions, labels)[0])


def _constant(values: Sequence[float]) -> bool:
    return len(set(values)) < 2


# Metrics of classes take class names, correlations of numbers take numbers.
METRICS: dict[str, Callable[..., float]] = {
    "matthews": matthews,
    "accuracy": accuracy,
    "f1": f1,
    "pearson": pearson,
    "spearman": spearman,
}
LOWEST = {"matthews": -100.0, "accuracy": 0.0, "f1": 0.0, "pearson": -100.0, "spearman": -100.0}


def evaluate(
    metrics: Sequence[str], predictions: Sequence[str] | Sequence[float], labels: Sequence[str] | Sequence[float]
) -> dict[str, float]:
    """Compute the metrics by name; each has its lowest possible value if any prediction is nan.

    :raises ValueError: the numbers of predictions and labels differ
    """
    if len(predictions) != len(labels):
        raise ValueError(f"{len(predictions)} predictions for {len(labels)} labels")
    if any(str(prediction) == "nan" for prediction in predictions):
        return {name: LOWEST[name] for name in metrics}
    return {name: METRICS[name](predictions, labels) for name in metrics}
