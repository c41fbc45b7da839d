"""Figures of language models: perplexity by epochs and by the length of the step."""

from collections.abc import Sequence
from statistics import mean
from typing import Any

import matplotlib.pyplot as plt
from figure_files import save, spread_over_seeds
from result_files import STUDIES, rows_of

from ode_transformer.recipes.recipe import read_recipe
from ode_transformer.support.tables import values_by_system
from ode_transformer.support.yaml_file import CONFIGS

# Systems of does_it_help_lm: how far one layer steps, the sum of its increments' weights, and its evaluations.
STEPS = {
    "Residual": (1, 1),
    "RK2": (1, 2),
    "RK2, gate": (1, 2),
    "RK4": (1, 4),
    "Residual, step size 2": (2, 1),
    "RK2, coefficients 1": (2, 2),
    "RK2, normalised gate": (2, 2),
    "Residual of 2 times the layers": (2, 2),
    "Residual, step size 4": (4, 1),
    "RK4, step size 4": (4, 4),
    "Residual of 4 times the layers": (4, 4),
    "layer repeated 4 times": (4, 4),
    "Residual, step size 8": (8, 1),
}
# Studies of the length of the step: the output matrix of their models, and its name in table5.csv.
STEP_STUDIES = {
    "does_it_help_lm-short": ("output shared with the embeddings", "shared"),
    "does_it_help_lm-short_untied": ("an output of its own", "own"),
}
LABEL_HEIGHT = 6.5  # of a label in that figure, in points of perplexity
# Lines of the figure of Table 5, and the published system that each is: its architecture and flags.
TABLE5: dict[str, tuple[Any, ...] | None] = {
    "Residual": ("ode_transformer_lm_euler",),
    "RK2": ("ode_transformer_lm_rk2", ("ode-coefficients", "tableau")),
    "RK2, gate": ("ode_transformer_lm_rk2",),
    "RK4": ("ode_transformer_lm_rk4",),
    "Residual, step size 4": None,
    "Residual of 2 times the layers": ("ode_transformer_lm_euler", ("decoder-layers", 2)),
    "layer repeated 4 times": None,
    "fairseq's transformer_lm": None,
}


def label_heights(points: Sequence[tuple[float, float]], gap: float) -> list[float]:
    """Return heights of labels to the right of points, each no lower than its point, so that none covers another.

    :param points: places and heights, from the lowest to the highest; labels of one place are ``gap`` apart
    """
    free: dict[float, float] = {}  # by place, the lowest height that is left
    heights = []
    for place, height in points:
        heights.append(max(height, free.get(place, height)))
        free[place] = heights[-1] + gap
    return heights


def draw_table5(output: str) -> None:
    """Draw validation perplexity by epochs of Table 5's models at their own size, and the paper's numbers."""
    published = {
        (result.arch, *result.flags.items()): result.scores["Perplexity test"]
        for result in read_recipe(CONFIGS / "ptb.yaml").expected
        if result.variant is None
    }
    curves: dict[tuple[str, ...], list[tuple[int, float]]] = {}  # (system, output, seed) -> epochs and perplexities
    for row in rows_of("table5"):
        point = int(row["epoch"]), float(row["perplexity"])
        curves.setdefault(tuple(row["run"].split("; ")), []).append(point)
    figure, panels = plt.subplots(1, 2, figsize=(14, 5), sharey=True, layout="constrained")
    titles = {place: title for title, place in STEP_STUDIES.values()}
    for axes, place in zip(panels, ["own", "shared"], strict=True):
        for colour, (system, key) in enumerate(TABLE5.items()):
            for (name, output_of, seed), points in curves.items():
                if (name, output_of) == (system, place):
                    label = system if seed == "seed 1" else None
                    axes.plot(*zip(*points, strict=True), color=f"C{colour}", linewidth=1.2, label=label)
            if key is not None:
                axes.axhline(published[key], color=f"C{colour}", linestyle=":", linewidth=1)
        axes.set_yscale("log")
        axes.set(xlim=(4, 20), ylim=(110, 260), yticks=[110, 120, 130, 140, 160, 180, 200, 250])
        axes.set(yticklabels=["110", "120", "130", "140", "160", "180", "200", "250"])
        axes.set(xlabel="epochs", title=titles[place], xticks=range(4, 21, 2))
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("validation perplexity; lower is better")
    panels[1].plot([], [], color="gray", linestyle=":", label="as published, in the same colour")
    figure.legend(*panels[1].get_legend_handles_labels(), loc="outside right upper")
    save(figure, output)


def draw_steps(output: str) -> None:
    """Draw validation perplexity on the Penn Treebank against the length of a step; a line joins single evaluations."""
    figure, panels = plt.subplots(1, 2, figsize=(14, 4.8), sharey=True, layout="constrained")
    for axes, (study, (title, _)) in zip(panels, STEP_STUDIES.items(), strict=True):
        draw_steps_of(axes, values_by_system(STUDIES / f"{study}.csv", "Perplexity valid"))
        axes.set(title=title, xlabel="how far a layer steps: the sum of its increments' weights")
    panels[0].set_ylabel("perplexity; lower is better")
    panels[0].legend()
    save(figure, output)


def draw_steps_of(axes: plt.Axes, values: dict[str, list[float]]) -> None:
    """Draw the mean and the standard deviation over seeds of each system at the length of its step.

    :param values: by system; those without a seed are left out
    """
    colours = {1: "C0", 2: "C1", 4: "C3"}
    systems = [(name, *steps) for name, steps in STEPS.items() if values.get(name)]
    single = [(length, mean(values[name])) for name, length, evaluations in systems if evaluations == 1]
    axes.plot(*zip(*single, strict=True), color="C0", linewidth=1)
    systems.sort(key=lambda system: mean(values[system[0]]))
    for name, length, evaluations in systems:
        height, spread = mean(values[name]), spread_over_seeds(values[name])
        axes.errorbar(length, height, yerr=spread, fmt="o", color=colours[evaluations], capsize=3)
        if evaluations == 1:
            axes.annotate(name, (length, height), (-7, -12), textcoords="offset points", fontsize=8, ha="right")
    several = [(name, length) for name, length, evaluations in systems if evaluations > 1]
    points = [(length, mean(values[name]) + LABEL_HEIGHT) for name, length in several]
    for (name, length), label_height in zip(several, label_heights(points, LABEL_HEIGHT), strict=True):
        axes.text(1.08 * length, label_height, name, fontsize=7, va="center")
    for evaluations, colour in colours.items():
        label = f"{evaluations} evaluation{'s' if evaluations > 1 else ''} of a layer"
        axes.plot([], [], "o", color=colour, label=label)
    axes.set_xscale("log", base=2)
    axes.set(xlim=(0.5, 14), xticks=[1, 2, 4, 8], xticklabels=["1", "2", "4", "8"])
    axes.grid(alpha=0.3)
