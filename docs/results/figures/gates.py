"""Figure of the gates' weights by updates, and the file that it is drawn from."""

import csv
import re
from collections.abc import Sequence

import matplotlib.pyplot as plt
from result_files import FOLDER, STUDIES, rows_of

from ode_transformer.support.files import write_text
from ode_transformer.support.tables import csv_text

# Data sets of the figure of gates.
GATE_DATA = {"g2p": "phonemes", "short_untied": "language model"}


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
    """Draw the first stage's fraction of a step by updates: a panel for each gate, a line for each layer and seed."""
    fractions: dict[tuple[str, str], dict[tuple[str, str], list[tuple[int, float]]]] = {}
    for row in rows_of("gates"):
        first, second = float(row["weight_1"]), float(row["weight_2"])
        lines = fractions.setdefault((row["data"], row["system"]), {})
        lines.setdefault((row["layer"], row["seed"]), []).append((int(row["updates"]), first / (first + second)))
    columns = 5
    figure, panels = plt.subplots(
        -(-len(fractions) // columns), columns, figsize=(14, 6), sharey=True, squeeze=False, layout="constrained"
    )
    for axes, ((data, system), lines) in zip(panels.flat, fractions.items(), strict=False):
        for (layer, _), points in sorted(lines.items()):
            axes.plot(*zip(*points, strict=True), color=f"C{int(layer) - 1}", linewidth=1, label=f"layer {layer}")
        axes.axhline(0.5, color="gray", linestyle=":", linewidth=1)
        axes.set_title(f"{GATE_DATA[data]}:\n{system}", fontsize=9)
        axes.set(xlabel="updates", ylim=(-0.03, 1.03))
        axes.grid(alpha=0.3)
    for axes in panels.flat[len(fractions) :]:
        axes.remove()
    for axes in panels[:, 0]:
        axes.set_ylabel("fraction of the first evaluation")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    panels[0, 1].legend(unique.values(), unique.keys(), fontsize=8, loc="lower left")
    figure.savefig(FOLDER / output, dpi=120, metadata={"Software": None})
