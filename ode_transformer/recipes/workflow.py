"""The way of a recipe: read it, plan its experiments, prepare, train, evaluate, compare with published results."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ode_transformer.analysis.training_log import read_log
from ode_transformer.metrics.metric import Score
from ode_transformer.models import fairseq_parser
from ode_transformer.recipes import machine, run_experiment
from ode_transformer.recipes.architectures import check_architecture
from ode_transformer.recipes.experiment import Experiment
from ode_transformer.recipes.flag_checks import RANGES, fairseq_problems
from ode_transformer.recipes.options import RunOptions
from ode_transformer.recipes.preparation import RecipeData
from ode_transformer.recipes.published import comparison_table, published_table
from ode_transformer.recipes.recipe import Recipe, read_recipe
from ode_transformer.recipes.recipe_files import find_recipe, results_name
from ode_transformer.recipes.training import has_checkpoints
from ode_transformer.recipes.training_reports import TrainingProgress
from ode_transformer.support import commands
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import write_text
from ode_transformer.support.yaml_file import CONFIGS

# Flags that words after -- cannot override, because evaluation, progress and tables depend on them.
FIXED_FLAGS = ("user-dir", "task", "arch", "source-lang", "target-lang", "save-dir", "log-format")


def load_recipe(name: str, options: RunOptions) -> Recipe:
    """Read and check a recipe, and apply the user's architecture, variant and number of averaged checkpoints.

    :raises UserError: there is no such recipe or architecture, or something in the recipe is wrong
    """
    recipe = read_recipe(find_recipe(name), fairseq_problems)
    if options.arch is not None:
        check_architecture(options.arch, recipe.task, f"--arch {options.arch}")
    recipe = recipe.for_arch(options.arch, options.variant)
    if options.average is None:
        return recipe
    return recipe.model_copy(update={"average": recipe.average.of_last(options.average)})


def recipe_data(recipe: Recipe, name: str, options: RunOptions) -> RecipeData:
    """Return the data of a recipe in the user's output folder; every preparation has its own folder.

    :param name: of the recipe, or the path of its file
    :raises UserError: no folder can have the name of the file
    """
    path = Path(name)
    if (stem := results_name(path)) is None:
        raise UserError(f"{name}: rename the recipe: the folder of its results would have no name")
    folder = options.output / "-".join(filter(None, (stem, recipe.preparation)))
    is_own = path.suffix == ".yaml" and path.resolve().parent != CONFIGS
    # Relative, so that both can be moved together.
    return RecipeData(recipe, folder, os.path.relpath(path.resolve(), folder.resolve()) if is_own else stem)


def plan_experiments(
    recipe: Recipe, data: RecipeData, options: RunOptions, several_machines: bool = False
) -> list[Experiment]:
    """Return one experiment for each seed.

    :param several_machines: whether the work can be shared by several machines, as only training can
    :raises UserError: the machine lacks what the options demand, or fairseq-train rejects the flags
    """
    available = machine.detect(
        options.gpus,
        options.precision,
        nodes=options.nodes,
        rank=options.node_rank,
        master=options.master,
        tokens=recipe.tokens_per_update,
        longest=max(machine.MIN_TOKENS_PER_PROCESS, int(recipe.train.get("tokens-per-sample", 0))),
        pretend=options.dry_run,
        cpu_processes=options.processes,
    )
    if available.nodes > 1 and not several_machines:
        raise UserError(f"Slurm has started this on {available.nodes} machines: only training takes several")
    experiment = Experiment(
        recipe,
        data,
        available,
        options.variant,
        minutes=options.minutes,
        max_tokens=options.max_tokens,
        train_flags=options.train_flags,
    )
    experiments = [replace(experiment, seed=seed) for seed in options.seeds]
    check_train_command(experiments[0])
    return experiments


def check_train_command(experiment: Experiment) -> None:
    """Check the words that the user passes to fairseq-train.

    :raises UserError: fairseq-train rejects them, they override a flag of ``FIXED_FLAGS``, or a value is out of range
    """
    arguments = experiment.train_words()
    settings = fairseq_parser.parse("fairseq-train", arguments)
    defaults = fairseq_parser.parse("fairseq-train", arguments[: len(arguments) - len(experiment.train_flags)])
    for flag in FIXED_FLAGS:
        value = getattr(settings, flag.replace("-", "_"), None)
        if value != getattr(defaults, flag.replace("-", "_"), None):
            raise UserError(f"-- --{flag} {value}: cannot be overridden")
    if settings.no_save:
        raise UserError("-- --no-save: nothing would be left to evaluate")
    parser = fairseq_parser.parser_for("fairseq-train", tuple(arguments[1:]))
    for flag, check in RANGES.items():
        option = flag.replace("-", "_")
        value = getattr(settings, option, None)
        # fairseq's own value may lie outside and switch something off, such as --patience -1.
        if value not in (getattr(defaults, option, None), parser.get_default(option)):
            for number in value if isinstance(value, list) else [value]:
                try:
                    check(str(number))
                except argparse.ArgumentTypeError as error:
                    raise UserError(f"--{flag} of fairseq-train: {error}") from error


def prepare(data: RecipeData, options: RunOptions) -> None:
    """Prepare the data and print their sizes, or print the command that binarises them."""
    downloads = options.output / "raw"
    if options.dry_run:
        published = [name for name in data.recipe.corpus.sources if name not in data.recipe.own_files]
        if published:
            print(f"raw files, from {options.raw or downloads}: {', '.join(published)}")
        commands.print_command(data.preprocess_command(data.all_splits(), options.workers))
        return
    data.prepare(options.raw, downloads, options.workers)
    print(data.report())


def train(experiment: Experiment, options: RunOptions) -> None:
    """Train, or print the command that trains."""
    if options.dry_run:
        print(f"{experiment.batch_description}; {experiment.machine}")
        commands.print_command(experiment.train_command(), experiment.folder / "train.log")
    else:
        train_with_progress(experiment)


def train_with_progress(experiment: Experiment) -> None:
    """Train with a line of progress."""
    log, minutes = experiment.folder / "train.log", 0.0
    if has_checkpoints(experiment.checkpoints) and log.exists():
        with contextlib.suppress(UserError):  # a log without reports: no reason to train nothing
            minutes = max((point.minutes or 0.0 for point in read_log(log)), default=0.0)
    with TrainingProgress(experiment.time_limit or math.inf, minutes, experiment.last_update()) as progress:
        run_experiment.train(experiment, progress)


def evaluate(experiment: Experiment, options: RunOptions) -> dict[str, Score]:
    """Evaluate and return the scores by title, or print the commands of the evaluation."""
    if options.dry_run:
        for command in experiment.evaluation_commands():
            commands.print_command(command)
        return {}
    if options.average and has_checkpoints(experiment.checkpoints) and not experiment.saved_checkpoints():
        kind = experiment.recipe.average.by
        raise UserError(f"--average {options.average}: {experiment.checkpoints} has no checkpoint of an {kind}")
    return run_experiment.evaluate(experiment)


def reproduce(
    data: RecipeData, experiments: Sequence[Experiment], options: RunOptions
) -> dict[int | None, Mapping[str, Score]]:
    """Prepare the data, train and evaluate every seed, and print the scores beside the published ones.

    :return: seed -> title -> score; without scores in a dry run
    """
    prepare(data, options)
    scores: dict[int | None, Mapping[str, Score]] = {}
    for experiment in experiments:
        train(experiment, options)
        scores[experiment.seed] = evaluate(experiment, options)
    if not options.dry_run:
        run = experiments[0].folder
        report = ["ode-transformer", "report", str(run), "--output", str(run / "report.html")]
        print(f"\nmodel: {experiments[0].model_path}\na page about it: {shlex.join(report)}")
        if data.recipe.score_titles:
            table = comparison_table(data.recipe, options.variant, options.train_flags, scores)
            write_text(experiments[0].table_path, table + "\n")
            print(f"\n{table}")
    return scores


def reproduce_table(name: str, table: str, options: RunOptions) -> None:
    """Reproduce every system of a published table, and print all scores beside the published ones.

    :param name: of the recipe, or the path of its file
    :param options: flags after -- are for every system
    :raises UserError: the recipe has no system of this table
    """
    expected = read_recipe(find_recipe(name), fairseq_problems).expected
    # A system may be listed twice, as an architecture of its own and by flags.
    systems = {(result.system, result.variant): result for result in reversed(expected) if result.table == table}
    if not (results := list(reversed(systems.values()))):
        tables = "; ".join(dict.fromkeys(result.table for result in expected))
        raise UserError(f"--table {table}: not among the published results of {name}: {tables or 'it has none'}")
    measured = []
    for number, result in enumerate(results, start=1):
        print(f"\n=== {result.table}: {result.system} ({number} of {len(results)})", flush=True)
        flags = (*commands.flags(result.flags), *options.train_flags)
        system = replace(options, arch=result.arch, variant=result.variant, train_flags=flags)
        recipe = load_recipe(name, system)
        data = recipe_data(recipe, name, system)
        scores = reproduce(data, plan_experiments(recipe, data, system), system)
        measured.append((result, list(scores.values())))
    if not options.dry_run:
        print(f"\n{published_table(measured)}")
