"""Write what the papers cost: hours of GPU for Tables 1 to 4 of ODE Transformer, one training for each system.

Command: python docs/results/figures/costs.py

Rows are the systems of this paper alone, without those of its released code, which cost the same. Tokens are those of
the recipes; speeds are those of configs/gpu_speed.yaml. Eight GPUs are counted as eight times as fast as one.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from result_files import STUDIES

from ode_transformer.lab.recipes import published, workflow
from ode_transformer.lab.recipes.experiment import Experiment
from ode_transformer.lab.recipes.machine import Machine
from ode_transformer.lab.recipes.needs import model_of, training_hours
from ode_transformer.lab.recipes.options import RunOptions
from ode_transformer.lab.recipes.recipe import load_recipe
from ode_transformer.support import commands
from ode_transformer.support.files import write_text

FILE = STUDIES / "paper_costs.csv"
TABLES = {
    "Table 1, WMT'14 En-De": ("wmt14_en_de", 1),
    "Table 1, WMT'14 En-Fr": ("wmt14_en_fr", 1),
    "Table 2, WMT'16 En-Ro": ("wmt16_en_ro", 2),
    "Table 3, WMT'14 En-De": ("wmt14_en_de", 3),
    "Table 4, CNN/DailyMail": ("cnn_dm", 4),
    "Table 4, CoNLL-2014": ("gec_conll14", 4),
}
COLUMNS = ("system", "tokens", "hours", "hours_8")


def table_experiments(recipe: str, table: int) -> Iterator[Experiment]:
    """Yield the trainings of a table, on one large GPU."""
    for result in published.table_systems(recipe, f"Li et al. 2022, Table {table}", None, ["*"]):
        if result.variant is None and result.arch.startswith("ode_transformer"):
            options = RunOptions(arch=result.arch, train_flags=tuple(commands.flags(result.flags)))
            chosen = load_recipe(recipe, options)
            data = workflow.recipe_data(chosen, recipe, options)
            yield Experiment(chosen, data, Machine(1, "fp16", large_gpus=True), options)


def cost_row(title: str) -> list[str]:
    """Return the row of a table: tokens of its trainings in thousands of millions, and hours."""
    trainings = [(run, model_of(run)) for run in table_experiments(*TABLES[title])]
    hours = sum(training_hours(run, model) for run, model in trainings)
    tokens = sum(run.batch.tokens * (run.last_update() or 0) for run, _ in trainings) / 1e9
    return [f"{title}, {len(trainings)} systems", *(f"{x:.2f}" for x in (tokens, hours, hours / 8))]


def main() -> None:
    """Write the file."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([COLUMNS, *map(cost_row, TABLES)])
    write_text(FILE, text.getvalue())


if __name__ == "__main__":
    main()
