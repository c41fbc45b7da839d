"""What a file of ``configs/`` says: a data set, and how it is prepared, trained on, decoded and scored."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from ode_transformer.corpora.corpus import test_split_name
from ode_transformer.corpora.kinds import Corpus
from ode_transformer.corpora.vocabulary import Vocabulary
from ode_transformer.support.errors import UserError
from ode_transformer.support.yaml_file import CONFIGS, YamlFile, YamlSection, find_config

Flags = dict[str, bool | int | float | str]  # of one of fairseq's commands, without the dashes
Count = Annotated[int, Field(gt=0)]
Numbers = dict[str, float]


class Average(YamlSection):
    """Which checkpoints make up the model that decodes: the last ones, or the best one.

    :param last: how many
    :param by: what they were saved after: epochs, or so many updates as ``every`` says
    :param best: the one with the lowest validation loss, instead
    """

    last: Count | None = None
    by: Literal["epoch", "update"] = "epoch"
    every: Count | None = None
    best: Literal[True] | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Average:
        if (self.last is None) == (self.best is None):
            raise ValueError("say either last: N or best: true")
        if (self.by == "update") != (self.every is not None):
            raise ValueError("by: update goes with every: N, the updates between two checkpoints")
        return self

    def of_last(self, count: int) -> Average:
        """The mean of so many of the last checkpoints instead."""
        return Average(last=count, by=self.by, every=self.every)

    def train_flags(self) -> Flags:
        """Flags of fairseq-train that save and keep these."""
        if self.by == "update":
            saved = {"save-interval-updates": self.every, "keep-interval-updates": self.last}
            return {"no-epoch-checkpoints": True, **saved}
        return {"no-epoch-checkpoints": True} if self.best else {"keep-last-epochs": self.last}


class Scoring(YamlSection):
    """One measure of the decoded test sets.

    :param names: what tables call its scores
    :param metric: of ``ode-transformer score``
    :param against: the references: tokenised as the model's output is, the raw text, or corrections in an M2 file
    :param options: further flags of ``ode-transformer score``
    """

    names: Annotated[list[str], Field(min_length=1)]
    metric: str
    against: Literal["tokens", "raw", "m2"] = "tokens"
    options: Flags = {}


class Expected(YamlSection):
    """A published result.

    :param table: of which paper
    :param arch: the architecture that stands for the system
    :param variant: of the recipe
    :param flags: of fairseq-train, where the system is not the architecture's default
    :param scores: by the names of the recipe's scores
    :param parameters: published count, in millions
    """

    table: str
    system: str
    arch: str
    variant: str | None = None
    flags: Flags = {}
    scores: Numbers
    parameters: int | None = None


class Overrides(YamlSection):
    """What is different for some architectures; see ``Recipe``."""

    tokens_per_update: Count | None = None
    minutes: Annotated[float, Field(gt=0)] | None = None
    average: Average | None = None
    train: Flags = {}
    generate: Flags = {}


class Recipe(YamlSection):
    """A data set and what is done with it.

    :param title: of the data set
    :param corpus: how its text is made, see ``corpora``
    :param vocabulary: how the text is divided into the pieces that the model reads
    :param arch: the default architecture
    :param task: fairseq's
    :param tokens_per_update: on all GPUs together, however many there are; target tokens, or source if these are more
    :param minutes: of training, where the recipe stops by the clock
    :param average: checkpoints behind the model that decodes
    :param train: flags of fairseq-train; ``max-tokens`` is what one GPU takes at a time
    :param generate: flags of fairseq-generate, or of fairseq-eval-lm for a language model
    :param score: what the output is measured by
    :param size: flags of fairseq-train that fit the default architecture to the data, where its own size does not
    :param architectures: pattern of names -> what differs for them; of several that match, the later ones win
    :param variants: name of a variant -> the same once more, for ``--variant``: where a paper and its code differ,
        where others are trained as one paper's are, or a small size
    :param score_valid: whether the validation set is decoded and scored, too
    :param counts: published sizes: lines of the splits, and ``dictionary``
    :param expected: published results
    """

    title: str
    corpus: Corpus
    vocabulary: Vocabulary
    arch: str
    task: Literal["translation", "language_modeling"] = "translation"
    tokens_per_update: Count
    minutes: Annotated[float, Field(gt=0)] | None = None
    average: Average
    train: Flags
    generate: Flags = {}
    score: list[Scoring]
    size: Flags = {}
    architectures: dict[str, Overrides] = {}
    variants: dict[str, dict[str, Overrides]] = {}
    score_valid: bool = False
    counts: dict[str, Count] = {}
    expected: list[Expected] = []

    @property
    def sets(self) -> dict[str, str]:
        """fairseq's names of the sets that are decoded, and the recipe's."""
        named = {"valid": "valid"} if self.score_valid else {}
        return named | {test_split_name(number): name for number, name in enumerate(self.corpus.tests)}

    def score_title(self, score: str, split: str) -> str:
        """What a score of a set is called in results."""
        return score if len(self.sets) == 1 else f"{score} {self.sets[split]}"

    @property
    def decoder(self) -> str:
        """fairseq's command that uses what was trained."""
        return "fairseq-generate" if self.task == "translation" else "fairseq-eval-lm"

    def for_arch(self, arch: str | None, variant: str | None = None) -> Recipe:
        """The recipe as it is for an architecture in its own size, with nothing left that depends on it.

        :param arch: None for the default in the recipe's size
        :param variant: one of ``variants``
        :raises UserError: the recipe has no such variant, or it changes nothing for this architecture
        """
        chosen, size = arch or self.arch, {} if arch else self.size
        applying = _matching(self.architectures, chosen)
        if variant is not None:
            applying += (named := _matching(self.variants.get(variant, {}), chosen))
            if not named:
                known = [name for name, patterns in self.variants.items() if _matching(patterns, chosen)]
                raise UserError(f"--variant {variant}: for {chosen} there is {', '.join(known) or 'none'}")
        flags = {"train": self.train | size, "generate": self.generate}
        changes: dict[str, Any] = {"arch": chosen, "size": {}, "architectures": {}, "variants": {}}
        for overrides in applying:
            given = {name: getattr(overrides, name) for name in overrides.model_fields_set}
            flags = {name: earlier | given.pop(name, {}) for name, earlier in flags.items()}
            changes |= given
        return self.model_copy(update=changes | flags)


def _matching(patterns: Mapping[str, Overrides], arch: str) -> list[Overrides]:
    return [overrides for pattern, overrides in patterns.items() if fnmatchcase(arch, pattern)]


# Files of other kinds in the same folder, and what reads them.
NOT_RECIPES = {
    "sources": "the catalogue of raw files",
    "glue": "the grid of scripts/glue.sh, which prepares and fine-tunes its eight tasks",
    "bert_demo": "the recipe of scripts/bert_demo.sh",
}


def names() -> list[str]:
    """Of all recipes."""
    return sorted(path.stem for path in CONFIGS.glob("*.yaml") if path.stem not in NOT_RECIPES)


def find(name: str) -> Path:
    """The file of a recipe: one of ours by its name, or the path of a file.

    :raises UserError: there is none
    """
    if name in NOT_RECIPES:
        raise UserError(f"{name}: {NOT_RECIPES[name]}; recipes are {', '.join(names())}")
    return find_config(name, CONFIGS, names(), "recipe")


def read_recipe(path: Path) -> tuple[Recipe, YamlFile]:
    """A recipe and where its values stand, for messages about what only fairseq can tell to be wrong.

    :raises UserError: names the file, the line and the key that is unknown, missing or impossible
    """
    document = YamlFile(path)
    recipe = document.parse(Recipe)
    titles = [
        recipe.score_title(name, split) for entry in recipe.score for name in entry.names for split in recipe.sets
    ]
    if twice := [title for title in titles if titles.count(title) > 1]:
        raise document.error(("score",), f"two scores are called {twice[0]}")
    for number, entry in enumerate(recipe.expected):
        if unknown := sorted(set(entry.scores) - set(titles)):
            key = ("expected", number, "scores", unknown[0])
            raise document.error(key, f"no score has this name; there are {', '.join(titles)}")
    if recipe.score_valid and recipe.task == "translation" and any(entry.against != "tokens" for entry in recipe.score):
        raise document.error(
            ("score_valid",), "the references of the validation set are tokens: no score against others"
        )
    if "max-tokens" not in recipe.train:
        raise document.error(("train",), "max-tokens is missing: what one GPU takes at a time")
    return recipe, document


def flags_of(recipe: Recipe) -> Mapping[tuple[str, ...], Flags]:
    """Every set of fairseq's flags in a recipe, by where it stands."""
    parts: dict[tuple[str, ...], Recipe | Overrides] = {(): recipe}
    parts |= {("architectures", pattern): overrides for pattern, overrides in recipe.architectures.items()}
    for name, patterns in recipe.variants.items():
        parts |= {("variants", name, pattern): overrides for pattern, overrides in patterns.items()}
    found = {(*where, name): getattr(part, name) for where, part in parts.items() for name in ("train", "generate")}
    return found | {("size",): recipe.size}
