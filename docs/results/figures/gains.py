"""Figure of gains over the residual model, at equal operations."""

from collections.abc import Mapping
from itertools import groupby
from statistics import mean
from typing import NamedTuple

import matplotlib.pyplot as plt
from result_files import FOLDER
from tables import Entry, comparisons, study_rows

BASELINE = "Residual"
# Residual layers with the baseline's parameters; RK2 with coefficients 1 applies a layer twice.
SAME_PARAMETERS = (f"{BASELINE}, step", "RK2, coefficients 1", "layer repeated", "four Euler steps", "two thin layers")


class Panel(NamedTuple):
    """A part of the figure, which is left out while there are no runs.

    :param where: columns and their values in the rows that are drawn
    :param sign: 1 if a higher score is better, else -1
    """

    title: str
    study: str
    where: Mapping[str, str]
    score: str
    sign: int


PANELS = [
    Panel("Table 5's size, schedule that ends: perplexity", "table5_today-ten_epochs", {}, "Perplexity test", -1),
    Panel(
        "Table 5's size, as in the paper: perplexity", "does_it_help_lm-ptb", {"layers": "1"}, "Perplexity valid", -1
    ),
    Panel("Spelling to phonemes, three layers: errors", "does_it_help-g2p", {"encoder layers": "3"}, "PER", -1),
    Panel("Spelling to phonemes, one layer: errors", "does_it_help-g2p", {"encoder layers": "1"}, "PER", -1),
    Panel("Multi30k to its end: BLEU", "does_it_help-multi30k_full", {}, "BLEU", 1),
    Panel("Multi30k, short updates: BLEU", "does_it_help-multi30k", {}, "BLEU", 1),
]
MARKS = {  # marker, colour and fill
    "Runge–Kutta, same parameters": ("o", "C1", "full"),
    "residual layers, same parameters: repeated, thin, or longer or shorter steps": ("s", "C0", "full"),
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
    """Draw the gain of each system over the residual model, in per cent, with Dunnett's 95% interval."""
    panels = [panel for panel in PANELS if Entry("", panel.study, panel.where, system=BASELINE).rows()]
    figure, grid = plt.subplots(-(-len(panels) // 2), 2, figsize=(13, 2 * len(panels)), layout="constrained")
    for axes, panel in zip(grid.flat, panels, strict=False):
        draw_panel(axes, panel)
    for axes in grid.flat[len(panels) :]:
        axes.remove()
    for kind, (marker, colour, fill) in MARKS.items():
        grid[0, 0].plot([], [], marker, color=colour, fillstyle=fill, label=kind)
    figure.legend(loc="outside lower center", ncols=4, fontsize=9)
    figure.savefig(FOLDER / output, dpi=120, metadata={"Software": None})


def draw_panel(axes: plt.Axes, panel: Panel) -> None:
    """Draw the gains of one study's systems with several seeds, from top to bottom in groups of equal operations."""
    compared = comparisons(panel.study, panel.score, BASELINE, frozenset(panel.where.items()))
    baseline = Entry("", panel.study, panel.where, panel.score, BASELINE).values()
    rows = [row for row in study_rows(panel.study) if panel.where.items() <= row.items()]
    operations = {row["system"]: float(row["operations"]) for row in rows}
    costs = {system: round(operations[system] / operations[BASELINE], 2) for system in compared}
    systems = [system for system in compared if compared[system].interval]
    systems.sort(key=lambda system: (costs[system], list(MARKS).index(kind_of(system))))
    height, heights = 0.0, []
    for cost, group in groupby(systems, costs.__getitem__):
        label = "at equal operations" if cost == 1 else f"at {cost:.2f} times the operations"
        axes.text(0.01, height - 0.5, label, transform=axes.get_yaxis_transform(), fontsize=8, color="gray")
        height -= 1.3
        for system in group:
            found = compared[system]
            scale = panel.sign * (1 if found.unit else 100 / mean(baseline))
            low, gain, high = sorted(scale * value for value in (*(found.interval or ()), found.value))
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
