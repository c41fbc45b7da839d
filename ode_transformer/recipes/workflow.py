"""The way of a recipe: read it, plan its experiments, prepare, train, evaluate, compare with published results."""

import contextlib
import math
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ode_transformer import __version__
from ode_transformer.analysis.training_log import read_log
from ode_transformer.metrics.metric import Score
from ode_transformer.models import fairseq_parser
from ode_transformer.recipes import machine, run_experiment
from ode_transformer.recipes.experiment import Experiment
from ode_transformer.recipes.options import RunOptions, find_recipe
from ode_transformer.recipes.preparation import RecipeData
from ode_transformer.recipes.published import comparison_table, published_table
from ode_transformer.recipes.recipe import Average, Recipe, check_architecture, read_recipe
from ode_transformer.recipes.training import TrainingProgress, has_checkpoints
from ode_transformer.support import commands
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import content_digest, write_text
from ode_transformer.support.jobs import Jobs
from ode_transformer.support.yaml_file import CONFIGS

DEFAULT_CHECKPOINT = "checkpoint_last.pt"  # of --restore-file, in the folder of the run


def load_recipe(name: str, options: RunOptions) -> Recipe:
    """Read a recipe, and apply the user's architecture, variant and number of averaged checkpoints.

    :raises UserError: there is no such recipe, architecture or variant, or something in the recipe is wrong
    """
    return choose_system(read_recipe(find_recipe(name)), options)


def choose_system(recipe: Recipe, options: RunOptions) -> Recipe:
    """Return a recipe with the user's architecture, variant and number of averaged checkpoints."""
    check_architecture(options.arch or recipe.arch, recipe.task, f"--arch {options.arch or recipe.arch}")
    recipe = recipe.for_arch(options.arch, options.variant)
    if options.average is None:
        return recipe
    average = Average(last=options.average, by=recipe.average.by, every=recipe.average.every)
    return recipe.model_copy(update={"average": average})


def recipe_data(recipe: Recipe, name: str, options: RunOptions) -> RecipeData:
    """Return the data of a recipe in the user's output folder; every preparation has its own folder.

    :param name: of the recipe, or the path of its file
    """
    path = Path(name)
    stem = path.stem if path.suffix == ".yaml" else name
    folder = options.output / "-".join(filter(None, (stem, recipe.preparation)))
    is_own = path.suffix == ".yaml" and path.resolve().parent != CONFIGS
    # Relative, so that both can be moved together.
    return RecipeData(recipe, folder, os.path.relpath(path.resolve(), folder.resolve()) if is_own else stem)


def plan_experiments(recipe: Recipe, data: RecipeData, options: RunOptions) -> list[Experiment]:
    """Return one experiment for each seed.

    :raises UserError: the machine lacks what the options demand, or fairseq-train rejects the flags
    """
    longest = max(machine.MIN_TOKENS_PER_PROCESS, int(recipe.train.get("tokens-per-sample", 0)))
    available = machine.detect(options, recipe.tokens_per_update, longest)
    experiments = [Experiment(recipe, data, available, options, seed) for seed in options.seeds]
    settings = fairseq_parser.parse("fairseq-train", experiments[0].train_words())
    # fairseq would start anew.
    if settings.restore_file != DEFAULT_CHECKPOINT and not Path(settings.restore_file).is_file():
        raise UserError(f"--restore-file {settings.restore_file}: no such file")
    return experiments


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
        if options.sources:
            print(experiment.train_sources())
        commands.print_command(experiment.train_command(), experiment.log)
    else:
        train_with_progress(experiment)


def train_with_progress(experiment: Experiment) -> None:
    """Train with a line of progress."""
    log, minutes = experiment.log, 0.0
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
    expected = read_recipe(find_recipe(name)).expected
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


def write_report(folder: Path, inputs: Sequence[Path], threads: int | None = None) -> None:
    """Write ``report.html`` of a run or a study unless it is current, and print where it lies.

    :param folder: of the run or of the study's results
    :param inputs: files that decide what the page shows
    :param threads: as for ``commands.run``
    """
    page = folder / "report.html"
    command: list[str | Path] = ["ode-transformer", "report", folder, "--output", page]
    jobs = Jobs(folder, report=lambda line: None)
    measure = partial(commands.run, command, folder / "report.log", threads=threads)
    try:
        jobs.run("report", [__version__, content_digest(inputs)], page, measure)
    except UserError as error:  # the page is an addition: all results are there without it
        print(f"report: left out ({error})")
    else:
        print(f"report, for a browser: {page}")
