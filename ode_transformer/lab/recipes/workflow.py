"""The way of a recipe: read it, plan its experiments, prepare, train, evaluate, compare with published results."""

import shlex
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ode_transformer import __version__
from ode_transformer.lab.metrics.metric import Score
from ode_transformer.lab.metrics.score_command import read_statistics
from ode_transformer.lab.metrics.significance import drawn_scores, paired_difference
from ode_transformer.lab.recipes import machine, run_experiment
from ode_transformer.lab.recipes.experiment import Experiment
from ode_transformer.lab.recipes.needs import describe_needs
from ode_transformer.lab.recipes.options import RunOptions
from ode_transformer.lab.recipes.preparation import RecipeData
from ode_transformer.lab.recipes.published import compared_pairs, comparison_table, published_table
from ode_transformer.lab.recipes.recipe import PublishedResult, Recipe, load_recipe
from ode_transformer.support import commands
from ode_transformer.support.console import print_progress, print_text
from ode_transformer.support.errors import LockedError, UserError
from ode_transformer.support.files import content_digest, is_locked, write_text
from ode_transformer.support.jobs import Jobs
from ode_transformer.support.yaml_file import CONFIGS, owner_name

DEFAULT_CHECKPOINT = "checkpoint_last.pt"  # of --restore-file, in the folder of the run
POLL_SECONDS = 30  # until a training of another process is looked at again


def recipe_data(recipe: Recipe, name: str, options: RunOptions) -> RecipeData:
    """Return the data of a recipe, given by name or path: a folder for each preparation in the user's output."""
    file = Path(name) if name.endswith(".yaml") else CONFIGS / f"{name}.yaml"
    folder = options.output / "-".join(filter(None, (file.stem, recipe.preparation)))
    return RecipeData(recipe, folder, owner_name(file, folder))


def plan_experiments(recipe: Recipe, data: RecipeData, options: RunOptions) -> list[Experiment]:
    """Return one experiment for each seed.

    :raises UserError: the machine lacks what the options demand, or fairseq-train rejects the flags
    """
    longest = max(machine.MIN_TOKENS_PER_PROCESS, int(recipe.train.get("tokens-per-sample", 0)))
    available = machine.detect(options, recipe.tokens_per_update, longest)
    experiments = [Experiment(recipe, data, available, options, seed) for seed in options.seeds]
    restored = experiments[0].train_settings.restore_file
    if restored != DEFAULT_CHECKPOINT and not Path(restored).is_file():  # fairseq would start anew
        raise UserError(f"--restore-file {restored}: no such file")
    return experiments


def prepare(data: RecipeData, options: RunOptions) -> None:
    """Prepare the data and print their sizes, or print the command that binarises them."""
    downloads = options.output / "raw"
    if options.dry_run:
        published = [name for name in data.recipe.corpus.sources if name not in data.recipe.own_files]
        if published:
            print_text(f"raw files, from {options.raw or downloads}: {', '.join(published)}")
        commands.print_command(data.preprocess_command(data.all_splits(), options.workers))
        return
    data.prepare(options.raw, downloads, options.workers)
    print(data.report())


def reproduce(experiments: Sequence[Experiment]) -> None:
    """Prepare the data, train and evaluate every seed, and print the scores beside the published ones."""
    print(describe_needs([experiments]), flush=True)
    prepare(experiments[0].data, experiments[0].options)
    train_and_compare(experiments)


def train_and_compare(experiments: Sequence[Experiment]) -> dict[int | None, Mapping[str, Score]]:
    """Train and evaluate every seed of a system; print and return the scores by seed and title."""
    data, options = experiments[0].data, experiments[0].options
    scores: dict[int | None, Mapping[str, Score]] = {}
    for experiment in experiments:
        run_experiment.train(experiment)
        scores[experiment.seed] = run_experiment.evaluate(experiment)
        if options.model_only and not options.dry_run:
            shutil.rmtree(experiment.checkpoints, ignore_errors=True)
    if not options.dry_run:
        run = experiments[0].folder
        report = ["ode-transformer", "report", str(run), "--output", str(run / "report.html")]
        page = shlex.join([*report, *commands.user_dir_flags()])
        print(f"\nmodel: {experiments[0].model_path}\na page about it: {page}")
        if data.recipe.score_titles:
            table = comparison_table(data.recipe, options.variant, options.train_flags, scores)
            write_text(data.folder / f"{experiments[0].run_name()}.md", table + "\n")
            print(f"\n{table}")
    return scores


def reproduce_table(
    name: str, table: str, systems: Sequence[PublishedResult], options: RunOptions, command: Sequence[str]
) -> None:
    """Reproduce the systems of a published table, and print all scores beside the published ones.

    A failure does not stop the other systems.

    :param options: flags after -- are for every system
    :param command: that the user has typed
    """
    plans = {}
    for result in systems:
        flags = (*commands.flags(result.flags), *options.train_flags)
        system = replace(options, arch=result.arch, variant=result.variant, train_flags=flags)
        recipe = load_recipe(name, system)
        plans[result.title] = plan_experiments(recipe, recipe_data(recipe, name, system), system)
    trainings = sum(map(len, plans.values()))
    print(f"{table}: {trainings} trainings of {len(plans)} systems; --systems and --variant choose some of them")
    print(describe_needs(list(plans.values())), flush=True)
    for data in {runs[0].data.folder: runs[0].data for runs in plans.values()}.values():
        prepare(data, options)
    scores: dict[str, dict[int | None, Mapping[str, Score]]] = {}

    def reproduce_system(title: str) -> None:
        scores[title] = train_and_compare(plans[title])

    failures = run_all({title: runs[0].folder for title, runs in plans.items()}, reproduce_system)
    measured = [(result, list(scores[result.title].values())) for result in systems if result.title in scores]
    if measured and not options.dry_run:
        print(f"\n{published_table(measured)}")
        for pair in compared_pairs([result for result, _ in measured]):
            print_paired_test({result.title: plans[result.title] for result in pair})
    end = command.index("--") if "--" in command else len(command)
    for title in (title for title in plans if title not in scores):
        print(f"\nfailed: {title}\n+ {shlex.join([*command[:end], '--systems', title, *command[end:]])}")
    if failures:
        raise UserError(f"{len(failures)} of {len(plans)} systems failed; the first: {failures[0]}")


def run_all(folders: Mapping[str, Path], run: Callable[[str], object]) -> list[str]:
    """Run trainings by their names and return a line for each failure, which does not stop the others.

    :param folders: name -> folder, locked by the process that trains, so that several processes can share the work
    """
    failures, remaining, waiting = [], list(folders), list[str]()
    while remaining:
        locked = []
        for name in remaining:
            if name in waiting and is_locked(folders[name]):
                locked.append(name)
                continue
            print(f"\n=== {name}", flush=True)
            try:
                run(name)
            except LockedError as error:
                print(f"{error}: later", flush=True)
                locked.append(name)
            except (UserError, OSError) as error:  # also a full disk
                failures.append(f"{name}: {error}")
                print_progress(failures[-1])
        if len(locked) == len(remaining):
            time.sleep(POLL_SECONDS)
        remaining = waiting = locked
    return failures


def print_paired_test(systems: Mapping[str, Sequence[Experiment]]) -> None:
    """Print the test of two systems over the sentences of their first test set, if a score follows from sentences."""
    scores = [[run.sentence_score_commands() for run in runs] for runs in systems.values()]
    for title in list(scores[0][0])[:1]:
        first, second = (drawn_scores([read_statistics(run[title]) for run in runs]) for runs in scores)
        print(f"\n{' − '.join(systems)}: {title} {paired_difference(first, second)}")


def write_report(folder: Path, inputs: Sequence[Path], threads: int | None = None) -> None:
    """Write ``report.html`` of a run or a study unless it is current, and print where it lies.

    :param inputs: files that decide what the page shows
    """
    page = folder / "report.html"
    command: list[str | Path] = ["ode-transformer", "report", folder, "--output", page]
    jobs = Jobs(folder, report=lambda line: None)
    measure = partial(commands.run, command, folder / "report.log", threads=threads)
    try:
        jobs.run("report", [__version__, content_digest(inputs)], page, measure)
    except UserError as error:  # the page is an addition: all results are there without it
        print_text(f"report: left out ({error})")
    else:
        print(f"report, for a browser: {page}")
