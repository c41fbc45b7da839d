"""Plot BLEU against minutes of training from the first table of quickstart.md.

Command: python docs/results/quickstart_curve.py
"""

import re
from pathlib import Path

import matplotlib.pyplot as plt

FOLDER = Path(__file__).parent


def read_scores(page: str) -> list[tuple[int, float]]:
    """Return minutes and BLEU of each row of the table."""
    rows = re.findall(r"^\| \**(\d+)\**[^|]*\| [\d,]+ \| ([\d.]+) \| [\d.]+ \|$", page, re.MULTILINE)
    return [(int(minutes), float(bleu)) for minutes, bleu in rows]


def main() -> None:
    """Write quickstart_curve.png beside the page."""
    minutes, scores = zip(*read_scores((FOLDER / "quickstart.md").read_text(encoding="utf-8")), strict=True)
    figure, axes = plt.subplots(figsize=(5.5, 2.6), layout="constrained")
    axes.plot(minutes, scores, marker="o", label="RK2, learned gate")
    axes.axhline(1.46, linestyle="--", color="gray", label="copy of the source")
    axes.set(xlabel="minutes of training on two cores", ylabel="BLEU", xlim=(0, 16), ylim=(0, 21))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(FOLDER / "quickstart_curve.png", dpi=130, metadata={"Software": None})


if __name__ == "__main__":
    main()
