"""Analyses of a study's runs: commands of ``ode-transformer`` with the files of the runs filled in.

An analysis is a command of ``ode-transformer analyse`` as it would be typed, with these words in braces:

    {runs}                  SYSTEM=FOLDER for each run
    {logs} {models}         SYSTEM=FILE for each system: decoded test set and averaged model of its first run
    {model}                 the averaged model of one system; the command is repeated for each system
    {data} {corpus}         the folders of the binarised data and of the text
    {search} {flavour}      flags of the recipe's search, and of its BLEU
    {metric}                the recipe's first score
    {references}            further references of the test set, if it has any
    {output}                path of the results, to be completed: {output}.png
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ode_transformer.lab.recipes.experiment import Command, Experiment
from ode_transformer.lab.recipes.recipe import Recipe
from ode_transformer.support import commands
from ode_transformer.support.files import file_name

Run = tuple[str, Experiment]  # the system's name, and one of its runs


def analysis_commands(analyses: Mapping[str, str], runs: Sequence[Run], folder: Path) -> Iterator[tuple[str, Command]]:
    """Yield the name and the command of each analysis, and of each system if the command takes one model."""
    systems: dict[str, Experiment] = {}
    for name, experiment in runs:
        systems.setdefault(file_name(name), experiment)  # of several seeds, the first
    shared = _shared_values(runs, systems)
    for name, text in analyses.items():
        if "{model}" not in text.split():
            yield name, _fill(text, shared, folder / name)
            continue
        for system, experiment in systems.items():
            title = f"{name}-{system}"
            yield title, _fill(text, shared | {"{model}": [experiment.model_path]}, folder / title)


def _fill(text: str, values: Mapping[str, Sequence[Any]], output: Path) -> Command:
    """Return the words of an analysis: a word that is a field becomes its words, a path may contain fields."""
    command: Command = ["ode-transformer", "analyse"]
    for word in text.split():
        path = word
        for field, value in {**values, "{output}": [output]}.items():
            path = path.replace(field, str(value[0])) if len(value) == 1 else path
        command += values.get(word, [path])
    return command


def _shared_values(runs: Sequence[Run], systems: Mapping[str, Experiment]) -> dict[str, Sequence[Any]]:
    """Return the words of each field that stands for all runs."""
    experiment, recipe = runs[0][1], runs[0][1].recipe
    further = [experiment.data.corpus / name for name in experiment.references(recipe.score[0], "test")[1:]]
    search = {name: recipe.generate.get(name) for name in ("beam", "lenpen", "max-len-a", "max-len-b")}
    flavour = _flavour(recipe)
    metric = recipe.score[0].metric
    tokenize = flavour.get("tokenize") if metric == "bleu" else None
    return {
        "{runs}": [f"{name}={run.folder}" for name, run in runs],
        "{logs}": [f"{name}={run.decode_log('test')}" for name, run in systems.items()],
        "{models}": [f"{name}={run.model_path}" for name, run in systems.items()],
        "{data}": [experiment.data.binary],
        "{corpus}": [experiment.data.corpus],
        "{search}": commands.flags(
            {"remove-bpe": recipe.vocabulary.remove_bpe, **search, "cpu": experiment.machine.gpus == 0}
        ),
        "{flavour}": commands.flags(flavour),
        "{metric}": commands.flags({"metric": metric, "tokenize": tokenize}),
        "{references}": ["--more-references", *further] if further else [],
    }


def _flavour(recipe: Recipe) -> dict[str, Any]:
    """Return the flags of the recipe's first BLEU."""
    for entry in recipe.score:
        if entry.metric == "bleu":
            tokenize = entry.options.get("tokenize", "none" if entry.against == "tokens" else None)
            return {"tokenize": tokenize, "lowercase": entry.options.get("lowercase")}
    return {}
