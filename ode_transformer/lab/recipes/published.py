"""Scores of a recipe beside the published ones."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from statistics import mean, stdev

from ode_transformer.lab.metrics.metric import Score
from ode_transformer.lab.recipes.options import find_recipe
from ode_transformer.lab.recipes.recipe import PublishedResult, Recipe, read_recipe
from ode_transformer.support import commands
from ode_transformer.support.errors import UserError
from ode_transformer.support.tables import markdown_table


def published_results(recipe: Recipe, variant: str | None, train_flags: Sequence[str]) -> list[PublishedResult]:
    """Return the published results of the system that the recipe trains with these flags.

    :param recipe: with an architecture's overrides applied
    :param train_flags: words for fairseq-train beside those of the recipe, in any order
    """
    flags = _flag_set(train_flags)
    of_arch = [result for result in recipe.expected if result.arch == recipe.arch and result.variant == variant]
    return [result for result in of_arch if _flag_set(commands.flags(result.flags)) == flags]


def _flag_set(arguments: Sequence[str]) -> set[tuple[str, ...]]:
    """Return flags, each with its values, without their order."""
    groups: list[list[str]] = []
    for word in arguments:
        if word.startswith("--") or not groups:
            groups.append([])
        groups[-1].append(word)
    return {tuple(group) for group in groups}


def comparison_table(
    recipe: Recipe, variant: str | None, train_flags: Sequence[str], scores: Mapping[int | None, Mapping[str, Score]]
) -> str:
    """Return a Markdown table of the scores of each seed, their mean and deviation, and the published results."""
    titles = list(next(iter(scores.values())))
    rows: list[list[str | float | None]] = [
        [f"seed {seed}" if seed is not None else recipe.arch, *(by_title[title].value for title in titles)]
        for seed, by_title in scores.items()
    ]
    if len(scores) > 1:
        columns = [[by_title[title].value for by_title in scores.values()] for title in titles]
        rows.append(["mean", *map(mean, columns)])
        rows.append(["standard deviation", *map(stdev, columns)])
    for result in published_results(recipe, variant, train_flags):
        rows.append([f"{result.table}: {result.system}", *(result.scores.get(title) for title in titles)])
    return markdown_table([recipe.title, *titles], [[_entry(value) for value in row] for row in rows])


def published_table(systems: Sequence[tuple[PublishedResult, Sequence[Mapping[str, Score]]]]) -> str:
    """Return a Markdown table of the systems of a published table: the mean of the seeds and the published score."""
    titles = list(dict.fromkeys(title for _, seeds in systems for scores in seeds for title in scores))
    rows = []
    for result, seeds in systems:  # which may be scored otherwise than the others
        means = [mean(scores[title].value for scores in seeds) if title in seeds[0] else None for title in titles]
        pairs = zip(means, map(result.scores.get, titles), strict=True)
        rows.append([result.title, *(_entry(value) for pair in pairs for value in pair)])
    columns = [column for title in titles for column in (title, "published")]
    return markdown_table([systems[0][0].table, *columns], rows)


def compared_pairs(systems: Sequence[PublishedResult]) -> list[tuple[PublishedResult, PublishedResult]]:
    """Return the pairs of systems whose difference is tested: those that ``against`` names, or the only two."""
    by_title = {result.title: result for result in systems}
    pairs = [(result, by_title[result.against]) for result in systems if result.against in by_title]
    return pairs or [(systems[0], systems[1])] * (len(systems) == 2)


def _entry(value: str | float | None) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if isinstance(value, float) else value


def table_systems(name: str, table: str, variant: str | None, patterns: Sequence[str]) -> list[PublishedResult]:
    """Return the systems of a published table.

    :param variant: only the systems that the recipe lists for it; if there are none, those without one are trained so
    :param patterns: of the systems' titles
    :raises UserError: there are none
    """
    expected = read_recipe(find_recipe(name)).expected
    if not (results := [result for result in expected if result.table == table]):
        tables = "; ".join(dict.fromkeys(result.table for result in expected))
        raise UserError(f"--table {table}: not among the published results of {name}: {tables or 'it has none'}")
    if variant is not None:
        listed = [result for result in results if result.variant == variant]
        plain = [result.model_copy(update={"variant": variant}) for result in results if result.variant is None]
        results = listed or plain
    systems: dict[str, PublishedResult] = {}
    for result in results:  # a system may be listed twice, as an architecture of its own and by flags
        systems.setdefault(result.title, result)
    if not (chosen := [r for title, r in systems.items() if any(fnmatchcase(title, p) for p in patterns)]):
        raise UserError(f"--systems: no system of {table} matches; it has {' | '.join(systems)}")
    return chosen
