"""GLUE from raw files to the table: pre-train by a recipe, prepare the tasks, fine-tune on all of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ode_transformer.glue.grid import GlueConfig
from ode_transformer.glue.grid_search import fine_tune
from ode_transformer.glue.preparation import prepare
from ode_transformer.glue.tasks import TASKS
from ode_transformer.recipes import workflow
from ode_transformer.recipes.options import RunOptions
from ode_transformer.support import commands

NAME = "glue"  # of the recipe


def reproduce(config: GlueConfig, path: Path, options: RunOptions) -> None:
    """Pre-train, fine-tune every combination of the grid on every task, and print the scores beside the published ones.

    :param path: file of ``config``
    :param options: of the user; flags of fairseq-train and the machine are those of pre-training
    """
    options = replace(options, arch=options.arch or config.arch)
    recipe = workflow.load_recipe(config.pretraining, options)
    data = workflow.recipe_data(recipe, config.pretraining, options)
    experiments = workflow.plan_experiments(recipe, data, options)
    workflow.reproduce(data, experiments, options)
    for experiment in experiments:
        output = options.output / NAME / experiment.folder.name
        model, pieces = experiment.checkpoints / "checkpoint_last.pt", experiment.model_path.parent
        tables = options.raw if options.raw and any((options.raw / name).is_dir() for name in TASKS) else None
        if options.dry_run:
            folders = {"raw": tables, "output": output}
            command = ["ode-transformer", "analyse", "glue"]
            commands.print_command([*command, "prepare", *commands.flags({"pretraining": pieces} | folders)])
            commands.print_command(
                [*command, "finetune", *commands.flags({"model": model, "config": path, "output": output})]
            )
            continue
        prepare(list(TASKS), pieces, tables, output)
        fine_tune(list(TASKS), model, output, config, (), dry_run=False)
