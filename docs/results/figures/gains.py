"""Figures of gains over the residual model, at equal operations."""

from statistics import mean

import matplotlib.pyplot as plt
from figure_files import BASELINE, is_residual, rows_of, save

from ode_transformer.metrics.significance import difference

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
        controls = {row["system"] for row in rows if is_residual(row)}
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
