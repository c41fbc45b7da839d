"""``ode-transformer analyse error-types``: edits of several systems by ERRANT's types (ODE Transformer 2022, Figure 7).

A group of bars for each type: the reference's edits, and the correct ones of each system. The table and the CSV file
also have each system's wrong edits of the type. The reference's number is that against the first system: of several
annotators each sentence is scored with the one who suits the system best (``metrics.error_types``).
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from ode_transformer.lab.analysis.examples import read_system
from ode_transformer.lab.analysis.plots import check_outputs, plain_label, saved_panel, write_csv
from ode_transformer.lab.metrics.error_types import system_counts
from ode_transformer.lab.metrics.max_match import Counts
from ode_transformer.support.arguments import named_systems
from ode_transformer.support.tables import markdown_table


def run(args: argparse.Namespace) -> None:
    """Print the table; with ``--output`` draw it, with ``--csv`` write the numbers."""
    check_outputs(args.output, args.csv)
    translations = {name: read_system(path) for name, path in named_systems(args).items()}
    hypotheses = {name: [line.hypothesis for line in lines] for name, lines in translations.items()}
    counted, _ = system_counts(hypotheses, args.gold)
    by_type = list(counted.values())
    gold = {kind: by_type[0].get(kind, Counts()).gold for types in by_type for kind in types}
    rows: list[list[str | int]] = []
    for kind in sorted(gold, key=lambda kind: (-gold[kind], kind)):  # the most frequent in the reference first
        counts = [types.get(kind, Counts()) for types in by_type]
        rows.append([kind, gold[kind], *(n for c in counts for n in (c.correct, c.proposed - c.correct))])
    titles = ["type", "reference", *(f"{name}, {kind}" for name in counted for kind in ("correct", "wrong"))]
    print(markdown_table(titles, [list(map(str, row)) for row in rows[: args.types]]))
    write_csv(args.csv, [titles, *rows])
    if args.output is not None:
        draw(rows[: args.types], list(counted), args.output)


def draw(rows: Sequence[Sequence[str | int]], systems: Sequence[str], path: Path) -> None:
    """Draw the reference's and the correct edits of each type."""
    columns = {"reference": 1} | {name: 2 + 2 * number for number, name in enumerate(systems)}
    width = 0.8 / len(columns)
    with saved_panel(path, 9, 4) as axes:
        for number, (name, column) in enumerate(columns.items()):
            heights = [int(row[column]) for row in rows]
            positions = [position + number * width for position in range(len(rows))]
            axes.bar(positions, heights, width, label=plain_label(name), color="lightgrey" if number == 0 else None)
        axes.set_xticks([position + 0.4 - width / 2 for position in range(len(rows))], [str(row[0]) for row in rows])
        axes.tick_params("x", rotation=45)
        axes.set_ylabel("edits of the reference, and correct ones")
        axes.grid(axis="y", alpha=0.3)
        axes.legend()
