"""Figure of encoders of one to six layers on phonemes."""

from statistics import mean

import matplotlib.pyplot as plt
from figure_files import rows_of, save, spread_over_seeds

# Lines of the figure of depths, and the systems of the study size on each.
DEPTH_LINES = {
    "residual layers": ("Residual", "Residual of 2 times the layers"),
    "the same, step size 2": ("Residual, step size 2",),
    "RK2, learned weights": ("RK2, gate",),
    "each layer applied twice": ("layer repeated 2 times",),
}


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
