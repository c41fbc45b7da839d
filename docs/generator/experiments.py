"""Page of all experiments: every table and figure of the five papers, its command and its state.

``python docs/generate.py`` writes the committed page.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from ode_transformer.lab.corpora.download import Source, read_sources
from ode_transformer.lab.glue import glue_command
from ode_transformer.lab.glue.tasks import CONFIG, GlueConfig
from ode_transformer.lab.recipes.experiment import Experiment
from ode_transformer.lab.recipes.machine import Machine
from ode_transformer.lab.recipes.options import RunOptions, find_recipe, recipe_names
from ode_transformer.lab.recipes.preparation import RecipeData
from ode_transformer.lab.recipes.published import table_systems
from ode_transformer.lab.recipes.recipe import PublishedResult, Recipe, choose_system, read_recipe
from ode_transformer.lab.studies import find_study, study_names
from ode_transformer.lab.studies.study import read_study
from ode_transformer.nn import STACKS, DepthChoice
from ode_transformer.support import commands
from ode_transformer.support.tables import markdown_table
from ode_transformer.support.yaml_file import YamlSection, read_yaml

DOCS = Path(__file__).parents[1]
STACK_PREFIXES = tuple(f"{stack}_" for stack in STACKS)
SIZES = ("layers", "embed_dim", "ffn_embed_dim", "attention_heads")

INTRODUCTION = """# Experiments

`python docs/generate.py` writes this page from [papers.yaml](papers.yaml), the recipes and the studies.

Every table and figure of the five papers, with the one command that makes it. Add `--dry-run` to a script to print its
commands without running them. A study answers the same question at a small size: `--setting g2p` or `--setting cpu`.

| state | means |
|---|---|
| reproduced | the published numbers come out |
| run in part | some rows ran at the published size; the linked page says which, and with how many updates and seeds |
| run small | run at a small size; the linked page has the numbers, which are not the paper's |
| proven on a stand-in | all jobs ran on a small corpus like the published files: no proof of scores |
| needs a GPU | the published size has not been run here, for want of GPUs |
| needs a licence | some raw files are sent on request: [data.md](data.md) |"""

SCORES = """## Every published score

The systems of the papers' tables by recipe, each with its command. A line above the command has the flags that tell the
systems of a table apart; a model that has no such flag has none there. `--dry-run --sources` prints all flags."""

State = Literal["reproduced", "run in part", "drawing"]


class PaperRow(YamlSection):
    """A table or figure, or a part of it.

    :param name: in the paper
    :param shows: its subject
    :param command: that makes it; None for a drawing
    :param study: that answers the same question
    :param results: page of docs/ with measurements
    :param state: None if it follows from the command, the study and the sources
    """

    name: str
    shows: str
    command: str | None = None
    study: str | None = None
    results: str | None = None
    state: State | None = None


class Paper(YamlSection):
    """A paper.

    :param tables: their number
    :param figures: their number
    """

    title: str
    tables: int
    figures: int
    rows: list[PaperRow]


class Papers(YamlSection):
    """The papers of docs/papers.yaml."""

    papers: list[Paper]


def read_papers() -> list[Paper]:
    """Read docs/papers.yaml."""
    return read_yaml(DOCS / "papers.yaml", Papers).papers


def recipe_of(command: str) -> Recipe | None:
    """Return the recipe whose data a command uses, with a setting's variant; None if it uses none."""
    program, *words = shlex.split(command)
    name = Path(words[0]).stem if program == "bash" else ""
    if name in ("reproduce", "prepare"):
        pretraining = read_yaml(CONFIG, GlueConfig).pretraining
        return read_recipe(find_recipe(pretraining if words[1] == glue_command.NAME else words[1]))
    if name == "study":
        study = read_study(find_study(words[1]))
        setting = study.settings[words[words.index("--setting") + 1] if "--setting" in words else study.first_setting]
        return read_recipe(find_recipe(setting.recipe)).for_arch(None, setting.variant)
    return None


def state_of(row: PaperRow, sources: Mapping[str, Source]) -> str:
    """Return the state of a row: what was done, then what more is needed."""
    if row.state == "drawing":
        return "a drawing"
    link = f" ([results]({row.results}))" if row.results else ""
    if row.state is not None:
        return row.state + link
    parts = [f"run small{link}" if link else "proven on a stand-in"]
    assert row.command is not None
    recipe = recipe_of(row.command)
    if recipe is None or "prepare.sh" not in row.command:
        parts.append("needs a GPU")
    if recipe is not None:
        parts += ["needs a licence"] if any(sources[name].obtain for name in recipe.corpus.sources) else []
    return "; ".join(parts)


def command_text(command: str | None) -> str:
    """Return the command of a row as Markdown, with the number of trainings of a published table."""
    if command is None:
        return ""
    words = shlex.split(command)
    if "--table" not in words or glue_command.NAME in words:
        return f"`{command}`"
    systems = table_systems(words[2], words[words.index("--table") + 1], None, ["*"])
    seeds = words[words.index("--seeds") + 1].split(",") if "--seeds" in words else [""]
    return f"`{command}`, {len(systems) * len(seeds)} trainings"


def paper_table(paper: Paper, sources: Mapping[str, Source]) -> str:
    """Return the table of a paper's tables and figures."""
    rows = [
        (
            row.name,
            row.shows,
            command_text(row.command),
            f"`{row.study}`" if row.study else "",
            state_of(row, sources),
        )
        for row in paper.rows
    ]
    return markdown_table(("", "shows", "command", "study", "state"), rows, "lllll")


def settings_of(recipe: Recipe, result: PublishedResult) -> dict[str, Any]:
    """Return the options of fairseq-train of a published result that a reader may tell systems by, in their order.

    First those of depth, then the sizes, then what recipe and result set.
    """
    words = tuple(commands.flags(result.flags))
    options = RunOptions(arch=result.arch, variant=result.variant, train_flags=words)
    system = choose_system(recipe, options)
    settings = vars(Experiment(system, RecipeData(system, Path()), Machine(0), options).train_settings)
    depth = [f"{stack}{option.dest()}" for option in DepthChoice.options().values() for stack in ("", *STACK_PREFIXES)]
    sizes = [f"{stack}{name}" for name in SIZES for stack in STACK_PREFIXES]
    flags = [flag.replace("-", "_") for flag in (*system.train, *result.flags) if flag != "max-tokens"]
    return {name: settings[name] for name in dict.fromkeys([*depth, *sizes, *flags]) if settings.get(name) is not None}


def distinguishing_settings(systems: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of few settings that tell systems apart as far as all do; each is the best beside those before.

    :param systems: of each system the settings by name
    """
    names = list(dict.fromkeys(name for settings in systems for name in settings))
    chosen: list[str] = []

    def kinds(name: str) -> int:
        """Return the number of systems that differ once a setting is added."""
        return len({repr([settings.get(each) for each in (*chosen, name)]) for settings in systems})

    count = 1
    while names and (best := max(map(kinds, names))) > count:
        chosen.append(next(name for name in names if kinds(name) == best))
        count = best
    return chosen


def score_commands(recipe: Recipe, name: str) -> Iterator[str]:
    """Yield for each published result of a recipe a comment, its settings within its table, and its command."""
    settings = [settings_of(recipe, result) for result in recipe.expected]
    tables = [result.table for result in recipe.expected]
    shown = {
        table: distinguishing_settings([each for each, other in zip(settings, tables, strict=True) if other == table])
        for table in tables
    }
    for result, values in zip(recipe.expected, settings, strict=True):
        scores = ", ".join(f"{title} {value:.2f}" for title, value in result.scores.items())
        yield f"# {result.table}, {result.system}: {scores}"
        if own := [name for name in shown[result.table] if name in values]:
            yield f"#   {', '.join(f'{name} {values[name]}'.replace('_', '-') for name in own)}"
        words = [
            "bash",
            "scripts/reproduce.sh",
            name,
            "--arch",
            result.arch,
            *commands.flags({"variant": result.variant}),
        ]
        flags = commands.flags(result.flags)
        yield shlex.join([*words, *(["--", *flags] if flags else [])])


def experiments_page() -> str:
    """Return the page as Markdown."""
    sources = read_sources()
    parts = [INTRODUCTION]
    for paper in read_papers():
        parts += [f"## {paper.title}", paper_table(paper, sources)]
    studies = [(f"`{name}`", read_study(find_study(name)).source) for name in study_names()]
    parts += ["## Studies", markdown_table(("study", "of"), studies, "ll"), SCORES]
    for name in recipe_names():
        if (recipe := read_recipe(find_recipe(name))).expected:
            parts += [f"### {recipe.title}", "\n".join(["```bash", *score_commands(recipe, name), "```"])]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    print(experiments_page(), end="")
