"""The quickstart: real text, a trained model, its translations and their score, in minutes on a CPU.

It runs the recipes ``quickstart_text`` and ``quickstart_g2p`` as ``ode-transformer reproduce`` does, and prints
translations, gates and curves on the way.
"""

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
from ode_transformer.lab.recipes.recipe import Recipe, architectures, choose_system, read_recipe
from ode_transformer.nn import depth_schemes
from ode_transformer.support import commands
from ode_transformer.support.console import compact_output, print_text
from ode_transformer.support.generate_log import read_generate_log
from ode_transformer.support.lines import read_lines

OUTPUT = Path("quickstart")
# What to translate after the quickstart, by task
EXAMPLES = {"text": ("Show all events.", "Please enter a valid date."), "g2p": ("b r i d g e", "q u i c k l y")}


@dataclass(frozen=True)
class Quickstart:
    """A run of the quickstart.

    :param options: of the run; ``raw`` is a folder with the wheels that contain the data
    :param task: ``text`` for translation, ``g2p`` for spelling to phonemes
    :param scheme: of the encoder, in the size of the default architecture
    """

    options: RunOptions
    task: str = "text"
    target: str | None = None
    scheme: str | None = None

    def recipe(self) -> Recipe:
        """Return the task's recipe for the target language, with the scheme's architecture in the recipe's size."""
        recipe = read_recipe(find_recipe(f"quickstart_{self.task}"))
        if self.target:
            corpus = recipe.corpus.model_dump(exclude_unset=True) | {"target": self.target}
            recipe = recipe.model_copy(update={"corpus": type(recipe.corpus).model_validate(corpus)})
        arch = self.options.arch or self._scheme_arch() or recipe.arch
        flags = {"log-depth-interval": recipe.train["log-interval"]} | recipe.train  # for the report
        # The recipe's size fits the architecture of any scheme.
        sized = {recipe.arch, *map(_tiny, depth_schemes())}
        recipe = recipe.model_copy(update={"train": flags, "arch": arch if arch in sized else recipe.arch})
        return choose_system(recipe, self.options)

    def _scheme_arch(self) -> str | None:
        """Return the architecture of the scheme: the papers' methods have their own, any other is a flag of Euler's."""
        if self.scheme is None or _tiny(self.scheme) in architectures("translation"):
            return self.scheme and _tiny(self.scheme)
        return _tiny("euler")

    def experiment(self) -> Experiment:
        """Return the experiment that the quickstart runs."""
        recipe, options = self.recipe(), self.options
        if self.scheme and not recipe.arch.endswith(f"_{self.scheme}_tiny"):
            flags = ("--encoder-ode-scheme", self.scheme, *options.train_flags)  # with its tableau's coefficients
            options = replace(options, train_flags=flags)
        if options.minutes:  # instead of the recipe's updates
            options = replace(options, train_flags=("--max-update", "0", *options.train_flags))
        data = RecipeData(recipe, options.output / "-".join(recipe.corpus.languages), f"quickstart_{self.task}")
        (experiment,) = workflow.plan_experiments(recipe, data, options)
        return experiment

    def next_commands(self, experiment: Experiment) -> str:
        """Return what to try after the quickstart, as lines of text with commands."""
        program = shutil.which("ode-transformer") and "ode-transformer"
        program = program or str(Path(sys.prefix) / "bin" / "ode-transformer")
        options = self.options
        task = self.task if self.task != "text" else None
        output = options.output if options.output != OUTPUT else None
        chosen = commands.flags({"task": task, "target": self.target, "output": output, "wheels": options.raw})
        chosen += commands.user_dir_flags()
        again = shlex.join([program, "quickstart", *chosen])
        model = commands.flags({"arch": options.arch, "scheme": self.scheme})
        updates = 3 * int(experiment.recipe.train["max-update"])
        longer = shlex.join(
            [program, "quickstart", *chosen, *model, "--", *options.train_flags, "--max-update", str(updates)]
        )
        translate = shlex.join([program, "translate", "--path", str(experiment.model_path), *commands.user_dir_flags()])
        lines = ["== now"]
        lines += [f"  translate a sentence:  echo {shlex.quote(text)} | {translate}" for text in EXAMPLES[self.task]]
        lines.append(f"  train longer:          {longer}")
        lines.append(f"  another scheme:        {again} --scheme rk4")
        own_text = "--train my.train.{en,de} --valid my.valid.{en,de}"
        lines.append(f"  your own data:         {program} new my-experiment {own_text}")
        lines.append(f"  the whole commands:    {_command_log(experiment)}")
        return "\n".join(lines)

    def prepare(self, experiment: Experiment) -> None:
        """Prepare the data: wheels → corpus → pieces → binarised."""
        experiment.data.prepare(self.options.raw, self.options.output / "wheels", workers=1)

    def run(self) -> None:
        """Prepare, train, translate and score; completed jobs are skipped."""
        experiment = self.experiment()
        data = experiment.data
        with compact_output(_command_log(experiment)):
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


def _tiny(scheme: str) -> str:
    return f"ode_transformer_{scheme}_tiny"


def _command_log(experiment: Experiment) -> Path:
    """Return the file of the whole commands."""
    return experiment.data.folder / "commands.log"


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
    if architectures(experiment.recipe.task)[experiment.recipe.arch]:  # fairseq's own models have no stages
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
