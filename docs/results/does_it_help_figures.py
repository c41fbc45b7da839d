"""Draw the figures of does_it_help.md and of the pages behind it from the CSV files of the studies.

Command: python docs/results/does_it_help_figures.py [--gates DATA=CSV …]
"""

import argparse
import csv
import re
from collections.abc import Collection, Sequence
from math import nan
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import matplotlib.pyplot as plt

from ode_transformer.metrics.significance import difference
from ode_transformer.recipes.recipe import read_recipe
from ode_transformer.support.files import write_text
from ode_transformer.support.tables import csv_text, values_by_system
from ode_transformer.support.yaml_file import CONFIGS

FOLDER = Path(__file__).parent
STUDIES = FOLDER / "studies"
BASELINE = "Residual"
# Systems that are residual layers under another name: RK2 with coefficients 1 applies a layer twice.
RESIDUAL = re.compile(rf"^{BASELINE}|^RK2, (coefficients 1|1 and 1)$|^middle layer")
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
# Studies of the length of the step: what their models put out words with, and its name in lm_stage_inputs.csv.
STEP_STUDIES = {
    "does_it_help_lm-short": ("output shared with the embeddings", "shared"),
    "does_it_help_lm-short_untied": ("an output of its own", "own"),
}
LABEL_HEIGHT = 6.5  # of a label in that figure, in points of perplexity
# Lines of the figure of depths, and the systems of the study size on each.
DEPTH_LINES = {
    "residual layers": ("Residual", "Residual of 2 times the layers"),
    "the same, step size 2": ("Residual, step size 2",),
    "RK2, learned weights": ("RK2, learnable",),
    "each layer applied twice": ("layer repeated 2 times",),
}
# Figures of gains, and their panels: title, study, the rows of it (a column and its value, or all), score and the sign
# of a better score.
GAINS: dict[str, list[tuple[str, str, tuple[str, str] | None, str, int]]] = {
    "does_it_help_answer.png": [
        ("language models, Table 5's size: perplexity", "does_it_help_lm-ptb", ("layers", "1"), "Perplexity valid", -1),
        ("translation, Multi30k: BLEU", "does_it_help-multi30k_full", None, "BLEU", 1),
        ("phonemes, 800 updates: errors", "depth-g2p", ("encoder layers", "3"), "PER", -1),
    ],
    "does_it_help_phonemes.png": [
        ("Table 10: phoneme errors", "coefficients-g2p", None, "PER", -1),
        ("schemes of later papers: phoneme errors", "later_schemes-g2p", None, "PER", -1),
    ],
}
# Models of Table 5 that are no step of the same layer; the figure of cost leaves them out.
NOT_IN_COST = ("fairseq's transformer_lm", "RK2, gate, released F", "RK4, released F")
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

# Data sets of the figure of gates.
GATE_DATA = {"g2p": "phonemes", "short_untied": "language model"}


def rows_of(name: str) -> list[dict[str, str]]:
    """Return the rows of a study's CSV file."""
    with open(STUDIES / f"{name}.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def spread_over_seeds(values: Collection[float]) -> float:
    """Return the standard deviation of a system's values; nan, which draws no bar, for a single seed."""
    return stdev(values) if len(values) > 1 else nan


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


def draw_gains(output: str) -> None:
    """Draw the gain of each system over the residual model, in percent, with its 95% interval over seeds.

    Systems stand in groups of equal operations; squares are residual layers, also more of them, or repeated ones.
    """
    figure, panels = plt.subplots(1, len(GAINS[output]), figsize=(16, 4.8), layout="constrained")
    for axes, (title, study, layers, score, sign) in zip(panels, GAINS[output], strict=True):
        rows = [row for row in rows_of(study) if row[score] and (layers is None or row[layers[0]] == layers[1])]
        scores: dict[str, list[float]] = {}
        for row in rows:
            scores.setdefault(row["system"], []).append(float(row[score]))
        baseline = scores.pop(BASELINE)
        operations = {row["system"]: float(row["operations"]) for row in rows}
        costs = {system: round(operations[system] / operations[BASELINE], 2) for system in scores}
        controls = {row["system"] for row in rows if row["control"] or RESIDUAL.search(row["system"])}
        systems = [system for system in scores if len(scores[system]) > 1]
        systems.sort(key=lambda system: (costs[system], system in controls))
        height = 0.0
        heights = []
        for i, system in enumerate(systems):
            if i == 0 or costs[system] != costs[systems[i - 1]]:
                height -= 0.5
                label = "at equal operations" if costs[system] == 1 else f"at {costs[system]:.2f} times the operations"
                axes.text(0.01, height, label, transform=axes.get_yaxis_transform(), fontsize=8, color="gray")
                height -= 0.8
            gain, interval = difference(scores[system], baseline)
            scale = sign * 100 / mean(baseline)
            low, high = sorted(scale * bound for bound in interval or (gain, gain))
            marker, colour = (
                ("D", "gray") if "fairseq" in system else ("s", "C0") if system in controls else ("o", "C1")
            )
            bar = [[scale * gain - low], [high - scale * gain]]
            axes.errorbar(scale * gain, height, xerr=bar, fmt=marker, color=colour, capsize=3)
            heights.append(height)
            height -= 1
        axes.axvline(0, color="gray", linewidth=1)
        axes.set(ylim=(height + 0.4, 0.2), xlabel="gain over the residual model [%] →")
        axes.set_title(title, fontsize=11)
        axes.set_yticks(heights, [system.replace("learnable", "gate") for system in systems], fontsize=9)
        axes.grid(alpha=0.3, axis="x")
    panels[-1].plot([], [], "C1o", label="Runge–Kutta and other schemes")
    panels[-1].plot([], [], "C0s", label="residual layers: more of them, repeated (also: coefficients 1), longer steps")
    figure.legend(loc="outside lower center", ncols=2, fontsize=9)
    save(figure, output)


def draw_cost(output: str) -> None:
    """Draw validation perplexity on the Penn Treebank against operations: small models, and those of Table 5's size."""
    studies = {
        "truncation-cpu": "d 128, 2,000 updates",
        "truncation-longer": "d 128, 6,000 updates",
        "does_it_help_lm-ptb": "Table 5's size, an output of its own",
    }
    figure, panels = plt.subplots(1, len(studies), figsize=(18, 4.6), layout="constrained")
    for axes, (study, title) in zip(panels, studies.items(), strict=True):
        values: dict[tuple[str, float, bool], list[float]] = {}
        for row in rows_of(study):
            # Residual layers of the second half of a table are controls of its first half.
            is_repeated = row["layers"] == "2" and row["system"].startswith("Residual")
            if row["Perplexity valid"] and row["system"] not in NOT_IN_COST and not is_repeated:
                name = row["system"].replace("learnable", "gate")
                label = name if row["layers"] == "1" else f"{name}, {row['layers']} layers"
                is_control = bool(row["control"]) and not name.startswith("RK2")
                key = label, float(row["operations"]) / 1e6, is_control
                values.setdefault(key, []).append(float(row["Perplexity valid"]))
        systems = sorted(values, key=lambda system: mean(values[system]))
        heights = [mean(values[system]) for system in systems]
        operations = [system[1] for system in systems]
        # About equal operations are one place.
        points = [(round(place, -1), height) for place, height in zip(operations, heights, strict=True)]
        labels = label_heights(points, (heights[-1] - heights[0]) / 20)
        for (name, place, control), height, label_height in zip(systems, heights, labels, strict=True):
            marker, colour = ("s", "C1") if control else ("o", "C0")
            spread = spread_over_seeds(values[name, place, control])
            axes.errorbar(place, height, yerr=spread, fmt=marker, color=colour, capsize=3)
            axes.annotate(name, (place, label_height), (7, 0), textcoords="offset points", fontsize=7, va="center")
        axes.set(xlabel="million operations for a sample", title=title)
        least, most = min(operations), max(operations)
        axes.set_xlim(least - 0.1 * (most - least), most + 0.6 * (most - least))
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("validation perplexity; lower is better")
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


def draw_stage_inputs(output: str) -> None:
    """Draw perplexity against how far from y the stages of a step read; a point is a training with several stages."""
    moved: dict[str, float] = {}  # of the stage that reads farthest from y
    for row in rows_of("lm_stage_inputs"):
        moved[row["model"]] = max(moved.get(row["model"], 0), float(row["moved"]))
    figure, panels = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for axes, (study, (title, place)) in zip(panels, STEP_STUDIES.items(), strict=True):
        points: dict[str, list[tuple[float, float]]] = {}
        for row in rows_of(study):
            distance = moved.get(f"{row['system']}; {place}; seed {row['seed']}")
            if distance and row["Perplexity valid"]:
                points.setdefault(row["system"], []).append((distance, float(row["Perplexity valid"])))
        for system, pairs in points.items():
            axes.plot(*zip(*pairs, strict=True), "o", label=system)
        axes.set_xscale("log")
        axes.set(title=title, xlabel="how far a stage reads from y, in lengths of y")
        axes.set(xlim=(1, 50), xticks=[1, 2, 5, 10, 20, 50], xticklabels=["1", "2", "5", "10", "20", "50"])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("perplexity; lower is better")
    panels[0].legend(fontsize=8)
    save(figure, output)


def draw_depths(output: str) -> None:
    """Draw validation perplexity on phonemes of encoders of 1 to 6 layers against operations and parameters."""
    figure, panels = plt.subplots(1, 2, figsize=(12, 4.4), sharey=True, layout="constrained")
    rows = [row for row in rows_of("size-g2p") if row["perplexity valid"]]
    for axes, quantity in zip(panels, ["operations", "parameters"], strict=True):
        for colour, (label, systems) in enumerate(DEPTH_LINES.items()):
            points: dict[float, dict[str, float]] = {}
            for row in rows:
                if row["system"] in systems:
                    seeds = points.setdefault(float(row[quantity]) / 1e6, {})
                    seeds[row["seed"]] = float(row["perplexity valid"])
            places = sorted(points)
            means = [mean(points[place].values()) for place in places]
            spreads = [spread_over_seeds(points[place].values()) for place in places]
            axes.errorbar(places, means, yerr=spreads, fmt="o-", color=f"C{colour}", capsize=3, label=label)
        axes.grid(alpha=0.3)
    panels[0].set(xlabel="million operations for a sample", ylabel="validation perplexity; lower is better")
    panels[1].set(xlabel="million parameters")
    panels[0].legend()
    save(figure, output)


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


def write_gates(sources: Sequence[str]) -> None:
    """Write gates.csv: the weights of both stages by data set, system, seed, updates and layer.

    :param sources: a data set and the CSV file of a study's analysis gates each, such as ``g2p=gates.csv``
    """
    rows: list[tuple[str, ...]] = [("data", "system", "seed", "updates", "layer", "weight_1", "weight_2")]
    for source in sources:
        data, path = source.split("=", 1)
        with open(path, newline="", encoding="utf-8") as file:
            updates = [row for row in csv.DictReader(file) if row["split"] == "train"]  # without means over epochs
        for row in updates:
            system = re.sub(r", \d+$", "", row["run"])  # without its layers
            seed = row["log"].split("-seed-")[1].split("-")[0]
            for column in row:
                found = re.fullmatch(r"(depth/\w+/(\d+)/weight)_1", column)
                if found and row[column]:
                    weights = [f"{float(row[f'{found[1]}_{stage}']):.4f}" for stage in (1, 2)]
                    rows.append((data, system, seed, row["updates"], found[2], *weights))
    write_text(STUDIES / "gates.csv", csv_text(rows))


def draw_gates(output: str) -> None:
    """Draw the first stage's share of a step by updates: a panel for each gate, a line for each layer and seed."""
    shares: dict[tuple[str, str], dict[tuple[str, str], list[tuple[int, float]]]] = {}
    for row in rows_of("gates"):
        first, second = float(row["weight_1"]), float(row["weight_2"])
        lines = shares.setdefault((row["data"], row["system"]), {})
        lines.setdefault((row["layer"], row["seed"]), []).append((int(row["updates"]), first / (first + second)))
    columns = 5
    figure, panels = plt.subplots(
        -(-len(shares) // columns), columns, figsize=(14, 6), sharey=True, squeeze=False, layout="constrained"
    )
    for axes, ((data, system), lines) in zip(panels.flat, shares.items(), strict=False):
        for (layer, _), points in sorted(lines.items()):
            axes.plot(*zip(*points, strict=True), color=f"C{int(layer) - 1}", linewidth=1, label=f"layer {layer}")
        axes.axhline(0.5, color="gray", linestyle=":", linewidth=1)
        axes.set_title(f"{GATE_DATA[data]}:\n{system}", fontsize=9)
        axes.set(xlabel="updates", ylim=(-0.03, 1.03))
        axes.grid(alpha=0.3)
    for axes in panels.flat[len(shares) :]:
        axes.remove()
    for axes in panels[:, 0]:
        axes.set_ylabel("share of the first evaluation")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    panels[0, 1].legend(unique.values(), unique.keys(), fontsize=8, loc="lower left")
    save(figure, output)


def draw_errors(output: str) -> None:
    """Draw perplexity against the truncation error of each model's own step."""
    perplexities = {r["system"]: float(r["Perplexity valid"]) for r in rows_of("truncation-cpu") if r["layers"] == "1"}
    figure, axes = plt.subplots(figsize=(5, 3.6), layout="constrained")
    for row in rows_of("lm_truncation_error"):
        if row["scheme"] == "as trained":
            point = float(row["relative_error"]), perplexities[row["model"]]
            axes.plot(*point, "o", color="C0")
            axes.annotate(row["model"], point, xytext=(4, 4), textcoords="offset points", fontsize=7)
    axes.set(xlabel="error of the model's own step, relative to the way", ylabel="validation perplexity")
    axes.margins(x=0.3, y=0.15)
    axes.grid(alpha=0.3)
    save(figure, output)


def save(figure: plt.Figure, name: str) -> None:
    """Write a figure beside this file."""
    figure.savefig(FOLDER / name, dpi=120, metadata={"Software": None})
    plt.close(figure)


def main() -> None:
    """Write all figures."""
    parser = argparse.ArgumentParser(description="Draws the figures of does_it_help.md.")
    parser.add_argument(
        "--gates",
        nargs="+",
        metavar="DATA=CSV",
        help="write gates.csv anew first, from the files gates.csv of the studies gate and gate_lm",
    )
    args = parser.parse_args()
    if args.gates:
        write_gates(args.gates)
    for output in GAINS:
        draw_gains(output)
    draw_table5("does_it_help_table5.png")
    draw_steps("does_it_help_steps.png")
    draw_cost("does_it_help_cost.png")
    draw_stage_inputs("does_it_help_stages.png")
    draw_depths("does_it_help_depths.png")
    draw_gates("does_it_help_gates.png")
    draw_errors("does_it_help_errors.png")


if __name__ == "__main__":
    main()
