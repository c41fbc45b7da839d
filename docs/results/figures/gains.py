"""Figures of gains over the residual model, at equal operations."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from statistics import mean

import matplotlib.pyplot as plt
from figure_files import BASELINE, SQUARE, mark_of, rows_of, save

from ode_transformer.metrics.significance import difference

# A panel: title, study, the rows of it (a column and its value, or all), score and the sign of a better score.
Panel = tuple[str, str, tuple[str, str] | None, str, int]
GAINS: dict[str, list[Panel]] = {
    "does_it_help_answer.png": [
        ("language models, Table 5's size: perplexity", "does_it_help_lm-ptb", ("layers", "1"), "Perplexity valid", -1),
        ("translation, Multi30k: BLEU", "does_it_help-multi30k_full", None, "BLEU", 1),
        ("spelling to phonemes, one layer: errors", "does_it_help-g2p", ("encoder layers", "1"), "PER", -1),
    ],
    "does_it_help_phonemes.png": [
        ("Table 10: phoneme errors", "coefficients-g2p", None, "PER", -1),
        ("schemes of later papers: phoneme errors", "later_schemes-g2p", None, "PER", -1),
    ],
}


def draw_gains(output: str, panels: Sequence[Panel]) -> None:
    """Draw the gain of each system over the residual model, in percent, with its 95% interval over seeds."""
    figure, all_axes = plt.subplots(1, len(panels), figsize=(16, 4.8), layout="constrained")
    for axes, (title, study, layers, score, sign) in zip(all_axes, panels, strict=True):
        rows = [row for row in rows_of(study) if row[score] and (layers is None or row[layers[0]] == layers[1])]
        draw_gains_of(axes, rows, score, sign)
        axes.set_title(title, fontsize=11)
    all_axes[-1].plot([], [], "C1o", label="Runge–Kutta and other schemes")
    all_axes[-1].plot(
        [], [], "C0s", label="residual layers: more of them, repeated (also: coefficients 1), longer or shorter steps"
    )
    figure.legend(loc="outside lower center", ncols=2, fontsize=9)
    save(figure, output)


def draw_gains_of(axes: plt.Axes, rows: Sequence[Mapping[str, str]], score: str, sign: int) -> None:
    """Draw the gains of one study's systems, from top to bottom in groups of equal operations.

    :param rows: a run each; systems with a single run are left out
    :param sign: 1 if a higher score is better, else -1
    """
    scores: dict[str, list[float]] = {}
    for row in rows:
        scores.setdefault(row["system"], []).append(float(row[score]))
    baseline = scores.pop(BASELINE)
    scale = sign * 100 / mean(baseline)
    operations = {row["system"]: float(row["operations"]) for row in rows}
    costs = {system: round(operations[system] / operations[BASELINE], 2) for system in scores}
    marks = {row["system"]: mark_of(row) for row in rows}
    systems = [system for system in scores if len(scores[system]) > 1]
    systems.sort(key=lambda system: (costs[system], marks[system] == SQUARE))
    height, heights = 0.0, []
    for cost, group in groupby(systems, costs.__getitem__):
        label = "at equal operations" if cost == 1 else f"at {cost:.2f} times the operations"
        axes.text(0.01, height - 0.5, label, transform=axes.get_yaxis_transform(), fontsize=8, color="gray")
        height -= 1.3
        for system in group:
            shift, interval = difference(scores[system], baseline)
            gain = scale * shift
            low, high = sorted(scale * bound for bound in interval or (shift, shift))
            marker, colour = marks[system]
            axes.errorbar(gain, height, xerr=[[gain - low], [high - gain]], fmt=marker, color=colour, capsize=3)
            heights.append(height)
            height -= 1
    axes.axvline(0, color="gray", linewidth=1)
    axes.set(ylim=(height + 0.4, 0.2), xlabel="gain over the residual model [%] →")
    axes.set_yticks(heights, systems, fontsize=9)
    axes.grid(alpha=0.3, axis="x")
