"""The quickstart: real text, a trained model, its translations and their score, in minutes on a CPU.

It runs the recipes ``quickstart_text`` and ``quickstart_g2p`` as ``ode-transformer reproduce`` does, and prints
translations, gates and curves on the way.
"""

import argparse
import shlex
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from ode_transformer.lab.analysis.training_log import read_log
from ode_transformer.lab.metrics.metric import Settings
from ode_transformer.lab.metrics.translation_scores import bleu
from ode_transformer.lab.recipes import run_experiment, workflow
from ode_transformer.lab.recipes.experiment import Command, Experiment
from ode_transformer.lab.recipes.options import RunOptions, find_recipe
from ode_transformer.lab.recipes.preparation import RecipeData
from ode_transformer.lab.recipes.recipe import choose_system, read_recipe
from ode_transformer.models.admission import is_of_this_package
from ode_transformer.nn import ARCHITECTURES, depth_schemes
from ode_transformer.support import commands
from ode_transformer.support.console import compact_output, print_text
from ode_transformer.support.generate_log import read_generate_log
from ode_transformer.support.lines import read_lines

OUTPUT = Path("quickstart")
# What to translate after the quickstart, by task
EXAMPLES = {"text": ("Show all events.", "Please enter a valid date."), "g2p": ("b r i d g e", "q u i c k l y")}


@dataclass(frozen=True)
class Quickstart:
    """A run of the quickstart; ``options.raw`` is a folder with the wheels that contain the data."""

    options: RunOptions
    task: str = "text"
    target: str | None = None
    scheme: str | None = None

    def experiment(self) -> Experiment:
        """Return the experiment that the quickstart runs, in the size of the task's recipe."""
        recipe = read_recipe(find_recipe(f"quickstart_{self.task}"))
        if self.target:
            corpus = recipe.corpus.model_dump(exclude_unset=True) | {"target": self.target}
            recipe = recipe.model_copy(update={"corpus": type(recipe.corpus).model_validate(corpus)})
        arch, flags = self.options.arch, self.options.train_flags
        if self.scheme:  # the papers' methods have architectures, any other is a flag of Euler's
            own_arch = f"ode_transformer_{self.scheme}_tiny"
            arch = arch or (own_arch if own_arch in ARCHITECTURES else "ode_transformer_euler_tiny")
            if arch != own_arch:
                flags = ("--encoder-ode-scheme", self.scheme, *flags)  # with its tableau's coefficients
        if self.options.minutes:  # instead of the recipe's updates
            flags = ("--max-update", "0", *flags)
        options = replace(self.options, arch=arch, train_flags=flags)
        train = {"log-depth-interval": recipe.train["log-interval"]} | recipe.train  # for the report
        # The recipe's size fits the architecture of any scheme.
        is_sized = arch in {f"ode_transformer_{scheme}_tiny" for scheme in depth_schemes()}
        recipe = recipe.model_copy(update={"train": train, "arch": arch if is_sized else recipe.arch})
        recipe = choose_system(recipe, options)
        data = RecipeData(recipe, options.output / "-".join(recipe.corpus.languages), f"quickstart_{self.task}")
        (experiment,) = workflow.plan_experiments(recipe, data, options)
        return experiment

    def next_commands(self, experiment: Experiment) -> str:
        """Return what to try after the quickstart, as lines of text with commands."""
        program = "ode-transformer" if shutil.which("ode-transformer") else f"{sys.prefix}/bin/ode-transformer"
        options, user_dir = self.options, commands.user_dir_flags()
        task = self.task if self.task != "text" else None
        output = options.output if options.output != OUTPUT else None
        chosen = commands.flags({"task": task, "target": self.target, "output": output, "wheels": options.raw})
        again = [program, "quickstart", *chosen, *user_dir]
        model = commands.flags({"arch": options.arch, "scheme": self.scheme})
        flags = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        flags.add_argument("--max-update", type=int, default=experiment.recipe.train["max-update"])
        made, others = flags.parse_known_args(options.train_flags)
        longer = shlex.join([*again, *model, "--", *others, "--max-update", str(3 * made.max_update)])
        translate = shlex.join([program, "translate", "--path", str(experiment.model_path), *user_dir])
        own_text = "--train my.train.{en,de} --valid my.valid.{en,de}"
        return "\n".join(
            [
                "== now",
                *(f"  translate a sentence:  echo {shlex.quote(text)} | {translate}" for text in EXAMPLES[self.task]),
                f"  train longer, anew:    {longer}",
                f"  another scheme:        {shlex.join(again)} --scheme rk4",
                f"  your own data:         {program} new my-experiment {own_text}",
                f"  the whole commands:    {experiment.data.folder}/commands.log",
            ]
        )

    def prepare(self, experiment: Experiment) -> None:
        """Prepare the data: wheels → corpus → pieces → binarised."""
        experiment.data.prepare(self.options.raw, self.options.output / "wheels", workers=1)

    def run(self) -> None:
        """Prepare, train, translate and score; completed jobs are skipped."""
        experiment = self.experiment()
        data = experiment.data
        with compact_output(data.folder / "commands.log"):
            self.prepare(experiment)
            sizes = (f"{name} {count:,}" for name, count in data.sizes().items())
            print(f"{data.folder}: {', '.join(sizes)}")
            run_experiment.train(experiment)
            run_experiment.evaluate(experiment)
            show_translations(experiment)
            analyse(experiment)
            inputs = [experiment.scores_path, experiment.model_path]
            workflow.write_report(experiment.folder, inputs, experiment.recipe.threads)
        print(self.next_commands(experiment))


def show_translations(experiment: Experiment) -> None:
    """Print some translations of the test set, and the score of copying the source."""
    data = experiment.data
    sources, references = (read_lines(data.corpus / f"test.{language}") for language in data.languages)
    translations = read_generate_log(experiment.decode_log("test"))
    # A short run decodes the first sentences.
    sources, references = sources[: len(translations)], references[: len(translations)]
    if experiment.recipe.vocabulary.model_file:
        print(f"(copying the source instead: {bleu(sources, Settings(references=references))[0]})")
    print("== three translations of the test set (source, reference, output)")
    for number in range(0, len(translations), max(1, len(translations) // 3))[:3]:
        print_text(f"  {sources[number]}\n    {references[number]}\n    {translations[number].hypothesis}")


def analyse(experiment: Experiment) -> None:
    """Print the stage weights of a model that has some, draw the losses, and print how much was trained."""
    folder = experiment.folder
    if is_of_this_package(experiment.recipe.arch):  # fairseq's own models have no stages
        weights: Command = ["ode-transformer", "analyse", "coefficients", experiment.model_path]
        weights += ["--data", experiment.data.binary]
        lines: list[str] = []
        experiment.run(weights, folder / "coefficients.log", lines.append)
        if any(" ± " in line for line in lines):
            print("== weights of the stages, mean ± deviation over the positions of validation sentences")
            print(*(f"  {line}" for line in lines), sep="", end="")
    files = {"output": folder / "curves.png", "csv": folder / "curves.csv"}
    plot: Command = ["ode-transformer", "analyse", "curves", experiment.log, *commands.flags(files)]
    experiment.run(plot, folder / "curves.log")
    points = read_log(experiment.log)
    updates, minutes = max(p.updates for p in points), max(p.minutes or 0 for p in points)
    print(f"This machine made {updates:,} updates in {minutes:.1f} minutes.")
