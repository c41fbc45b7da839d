"""The table that answers whether it helps has the means of the studies' runs."""

import csv
from pathlib import Path
from statistics import mean, stdev

RESULTS = Path(__file__).parents[2] / "docs" / "results"

# Column of the table: study with its place, score, decimals
COLUMNS = {
    "Table 5's size, perplexity": ("does_it_help_lm-ptb", "Perplexity valid", 1),
    "phonemes, errors in 100": ("does_it_help-g2p", "PER", 2),
    "Multi30k, BLEU": ("does_it_help-multi30k_full", "BLEU", 2),
    "quickstart's translation, BLEU": ("does_it_help-text_tuned", "BLEU", 2),
    "small language models, perplexity": ("does_it_help_lm-short_untied_tuned", "Perplexity valid", 1),
}
OTHER_STUDIES = {"does_it_help-text_tuned": "does_it_help-text"}  # of the same models, where the first lacks a system
SYSTEMS = {
    "residual": "Residual",
    "residual, step of 2": "Residual, step size 2",
    "RK2, normalised gate (ours)": "RK2, normalised gate",
    "two residual layers": "Residual of 2 times the layers",
    "a layer repeated four times": "layer repeated 4 times",
    "four residual layers": "Residual of 4 times the layers",
}


def table() -> list[dict[str, str]]:
    """Return the rows of the page's first table."""
    lines = (RESULTS / "does_it_help.md").read_text(encoding="utf-8").splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("| layers |"))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[first : lines.index("", first)]]
    return [dict(zip(rows[0], row, strict=True)) for row in rows[2:]]


def scores(study: str, system: str, score: str) -> list[float]:
    """Return a score of all runs of a system with the fewest layers that its study has."""
    with open(RESULTS / "studies" / f"{study}.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    layers = next(name for name in rows[0] if name.endswith("layers"))
    fewest = min(int(row[layers]) for row in rows)
    return [float(row[score]) for row in rows if row["system"] == system and int(row[layers]) == fewest]


def test_each_cell_is_the_mean_of_its_runs_and_none_is_left_out() -> None:
    rows = table()
    assert len(rows) == 11
    for row in rows:
        system = SYSTEMS.get(row["layers"], row["layers"])
        for column, (study, score, decimals) in COLUMNS.items():
            values = scores(study, system, score) or scores(OTHER_STUDIES.get(study, study), system, score)
            expected = f"{mean(values):.{decimals}f} ± {stdev(values):.{decimals}f}" if values else ""
            assert row[column] == expected, (row["layers"], column)
