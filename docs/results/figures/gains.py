"""Figure of gains over the residual model, at equal operations."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from statistics import mean
from typing import NamedTuple

import matplotlib.pyplot as plt
from figure_files import save
from result_files import rows_of

from ode_transformer.metrics.significance import difference

BASELINE = "Residual"
# Residual layers with the baseline's parameters; RK2 with coefficients 1 applies a layer twice.
SAME_PARAMETERS = (f"{BASELINE}, step", "RK2, coefficients 1", "layer repeated", "four Euler steps")


class Panel(NamedTuple):
    """A part of the figure.

    :param where: a column and its value in the rows that are drawn
    :param sign: 1 if a higher score is better, else -1
    """

    title: str
    study: str
    where: tuple[str, str]
    score: str
    sign: int


PANELS = [
    Panel(
        "Language models, Table 5's size: perplexity", "does_it_help_lm-ptb", ("layers", "1"), "Perplexity valid", -1
    ),
    Panel("Spelling to phonemes, one layer: errors", "does_it_help-g2p", ("encoder layers", "1"), "PER", -1),
    Panel("Multi30k to its end: BLEU", "does_it_help-multi30k_full", ("encoder layers", "4"), "BLEU", 1),
    Panel("Multi30k, short updates: BLEU", "does_it_help-multi30k", ("encoder layers", "6"), "BLEU", 1),
]
MARKS = {  # marker, colour and fill
    "Runge–Kutta": ("o", "C1", "full"),
    "residual layers, same parameters: repeated, or longer or shorter steps": ("s", "C0", "full"),
    "residual layers, more parameters": ("s", "C0", "none"),
    "fairseq": ("D", "gray", "full"),
}
RUNGE_KUTTA, SAME, MORE, FAIRSEQ = MARKS


def kind_of(system: str) -> str:
    """Return the kind of a system, a key of ``MARKS``."""
    if "fairseq" in system:
        return FAIRSEQ
    if system.startswith(SAME_PARAMETERS):
        return SAME
    return MORE if system.startswith(BASELINE) else RUNGE_KUTTA


def draw_gains(output: str) -> None:
    """Draw the gain of each system over the residual model, in percent, with its 95% interval over seeds."""
    figure, all_axes = plt.subplots(2, 2, figsize=(13, 8), layout="constrained")
    for axes, panel in zip(all_axes.flat, PANELS, strict=True):
        column, value = panel.where
        draw_panel(axes, panel, [row for row in rows_of(panel.study) if row[panel.score] and row[column] == value])
    for kind, (marker, colour, fill) in MARKS.items():
        all_axes[0, 0].plot([], [], marker, color=colour, fillstyle=fill, label=kind)
    figure.legend(loc="outside lower center", ncols=4, fontsize=9)
    save(figure, output)


def draw_panel(axes: plt.Axes, panel: Panel, rows: Sequence[Mapping[str, str]]) -> None:
    """Draw the gains of one study's systems, from top to bottom in groups of equal operations.

    :param rows: a run each; systems with a single run are left out
    """
    scores: dict[str, list[float]] = {}
    for row in rows:
        scores.setdefault(row["system"], []).append(float(row[panel.score]))
    baseline = scores.pop(BASELINE)
    scale = panel.sign * 100 / mean(baseline)
    operations = {row["system"]: float(row["operations"]) for row in rows}
    costs = {system: round(operations[system] / operations[BASELINE], 2) for system in scores}
    systems = [system for system in scores if len(scores[system]) > 1]
    systems.sort(key=lambda system: (costs[system], list(MARKS).index(kind_of(system))))
    height, heights = 0.0, []
    for cost, group in groupby(systems, costs.__getitem__):
        label = "at equal operations" if cost == 1 else f"at {cost:.2f} times the operations"
        axes.text(0.01, height - 0.5, label, transform=axes.get_yaxis_transform(), fontsize=8, color="gray")
        height -= 1.3
        for system in group:
            shift, interval = difference(scores[system], baseline)
            gain = scale * shift
            low, high = sorted(scale * bound for bound in interval or (shift, shift))
            marker, colour, fill = MARKS[kind_of(system)]
            bounds = [[gain - low], [high - gain]]
            axes.errorbar(gain, height, xerr=bounds, fmt=marker, color=colour, fillstyle=fill, capsize=3)
            heights.append(height)
            height -= 1
    axes.axvline(0, color="gray", linewidth=1)
    axes.set(ylim=(height + 0.4, 0.2), xlabel="gain over the residual model [%] →")
    axes.set_title(panel.title, fontsize=11)
    axes.set_yticks(heights, systems, fontsize=9)
    axes.grid(alpha=0.3, axis="x")
