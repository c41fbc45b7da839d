"""Recipe file format: a data set and how it is prepared, trained on, decoded and scored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError, model_validator

from ode_transformer.corpora.corpus import fairseq_test_split
from ode_transformer.corpora.kinds import Corpus
from ode_transformer.corpora.sources import AnySource, Source, missing_source_help, read_sources
from ode_transformer.corpora.vocabulary import Vocabulary
from ode_transformer.metrics.registry import METRICS
from ode_transformer.metrics.score_command import parse_recorded, parse_settings
from ode_transformer.recipes.file_flags import Flags
from ode_transformer.support import commands
from ode_transformer.support.arguments import LARGEST_INT
from ode_transformer.support.errors import UserError
from ode_transformer.support.yaml_file import Key, YamlSection, key_error, read_yaml

Count = Annotated[int, Field(gt=0, le=LARGEST_INT)]
Problem = tuple[Key, str]  # the key in the file, and what is wrong there


class Average(YamlSection):
    """The checkpoints that make up the decoded model: the last ones, or the best one.

    :param last: number of checkpoints
    :param by: what the checkpoints are saved after: each epoch, or every ``every`` updates
    :param every: updates between two checkpoints
    :param best: take the checkpoint with the lowest validation loss instead
    """

    last: Count | None = None
    by: Literal["epoch", "update"] = "epoch"
    every: Count | None = None
    best: Literal[True] | None = None

    @model_validator(mode="after")
    def _check_alternatives(self) -> Average:
        if (self.last is None) == (self.best is None):
            raise ValueError("say either last: N or best: true")
        if (self.by == "update") != (self.every is not None):
            raise ValueError("by: update goes with every: N, the updates between two checkpoints")
        return self

    def of_last(self, count: int) -> Average:
        """Return a copy that averages this number of the last checkpoints."""
        return Average(last=count, by=self.by, every=self.every)

    def train_flags(self) -> Flags:
        """Return the flags of fairseq-train that save and keep these checkpoints."""
        flags: dict[str, bool | int | None]
        if self.by == "update":
            flags = {
                "no-epoch-checkpoints": True,
                "save-interval-updates": self.every,
                "keep-interval-updates": self.last,
            }
        else:
            flags = {"no-epoch-checkpoints": self.best, "keep-last-epochs": self.last}
        return {name: value for name, value in flags.items() if value is not None}


def _known_metric(name: str) -> str:
    """Return a metric's name unless there is none such."""
    if name not in METRICS:
        raise ValueError(f"{name!r}: known are {', '.join(METRICS)}")
    return name


class Scoring(YamlSection):
    """A measure of the decoded test sets.

    :param names: of its scores in tables
    :param metric: of ``ode-transformer score``
    :param against: the references: tokenised as the model's output is, the raw text, or corrections in an M2 file
    :param options: further flags of ``ode-transformer score``
    """

    names: Annotated[list[str], Field(min_length=1)]
    metric: Annotated[str, AfterValidator(_known_metric)]
    against: Literal["tokens", "raw", "m2"] = "tokens"
    options: Flags = {}


class PublishedResult(YamlSection):
    """A published result.

    :param table: paper and table
    :param system: its name in the paper
    :param arch: the architecture that stands for the system
    :param variant: of the recipe
    :param flags: of fairseq-train, where the system differs from the architecture's default
    :param scores: by the names of the recipe's scores
    :param parameters: published count, in millions
    """

    table: str
    system: str
    arch: str
    variant: str | None = None
    flags: Flags = {}
    scores: dict[str, float]
    parameters: int | None = None


class Preparation(YamlSection):
    """Another preparation of the same data set: keys that replace the recipe's.

    :param corpus: keys of the corpus; null sets a key back to its default
    :param vocabulary: keys of the vocabulary; all of them if ``kind`` is among them
    :param counts: published sizes of this preparation
    """

    corpus: dict[str, Any] = {}
    vocabulary: dict[str, Any] = {}
    counts: dict[str, Count] = {}


class Overrides(YamlSection):
    """Values that replace the recipe's for some architectures; see ``Recipe``.

    :param preparation: one of the recipe's ``preparations``
    """

    preparation: str | None = None
    score: list[Scoring] | None = None
    tokens_per_update: Count | None = None
    minutes: Annotated[float, Field(gt=0)] | None = None
    average: Average | None = None
    train: Flags = {}
    generate: Flags = {}


class Recipe(YamlSection):
    """A data set and how it is prepared, trained on, decoded and scored.

    :param title: of the data set
    :param corpus: how its text is built, see ``corpora``
    :param sources: raw files beside those of ``configs/sources.yaml``: name -> path relative to the recipe, or an entry
        as in that file
    :param vocabulary: how the text is divided into the pieces that the model reads
    :param arch: the default architecture
    :param task: of fairseq
    :param tokens_per_update: on all GPUs together, whatever their number; target tokens, or source if these are more
    :param minutes: limit of the training time, for recipes that stop by the clock
    :param threads: of training and decoding on a CPU, where a second one gains nothing and waits on a busy machine; all
        processors if there is none
    :param average: checkpoints of the decoded model
    :param train: flags of fairseq-train; ``max-tokens`` is the load of one GPU
    :param generate: flags of fairseq-generate, or of fairseq-eval-lm for a language model
    :param score: measures of the output
    :param size: flags of fairseq-train that fit the default architecture to the data, where its own size does not;
        after ``for_arch`` those that it has left out, because that architecture was asked for by its name
    :param architectures: pattern of names -> values that differ for them; of several matches the last wins
    :param variants: name -> another such table, for ``--variant``: where a paper and its code differ, where other
        architectures are trained as in one paper, or a small size
    :param preparations: other preparations of the data, by names that architectures and variants refer to
    :param preparation: the chosen one of them; None for the recipe's own
    :param score_valid: whether the validation set is decoded and scored, too
    :param counts: published sizes: lines of the splits, and ``dictionary``
    :param expected: published results
    """

    title: str
    corpus: Corpus
    sources: dict[str, str | Source] = {}
    vocabulary: Vocabulary
    arch: str
    task: Literal["translation", "language_modeling", "masked_lm"] = "translation"
    tokens_per_update: Count
    minutes: Annotated[float, Field(gt=0)] | None = None
    threads: Count | None = None
    average: Average
    train: Flags
    generate: Flags = {}
    score: list[Scoring]
    size: Flags = {}
    architectures: dict[str, Overrides] = {}
    variants: dict[str, dict[str, Overrides]] = {}
    preparations: dict[Annotated[str, Field(pattern=r"^\w+$")], Preparation] = {}
    preparation: str | None = None
    score_valid: bool = False
    counts: dict[str, Count] = {}
    expected: list[PublishedResult] = []

    def source_list(self) -> dict[str, AnySource]:
        """Return the published raw files and the recipe's own, by name."""
        published = {name: source for name, source in self.sources.items() if not isinstance(source, str)}
        return read_sources() | published | self.own_files

    @property
    def own_files(self) -> dict[str, Path]:
        """The user's files, which are read where they are, by name."""
        return {name: Path(source) for name, source in self.sources.items() if isinstance(source, str)}

    @property
    def sets(self) -> dict[str, str]:
        """The decoded sets: fairseq's name of each -> the recipe's name."""
        validation = {"valid": "valid"} if self.score_valid else {}
        return validation | {fairseq_test_split(number): name for number, name in enumerate(self.corpus.tests)}

    def score_title(self, score: str, split: str) -> str:
        """Return the title of a set's score in results."""
        return score if len(self.sets) == 1 else f"{score} {self.sets[split]}"

    @property
    def score_titles(self) -> list[str]:
        """Titles of all scores of all sets."""
        return [self.score_title(name, split) for entry in self.score for name in entry.names for split in self.sets]

    @property
    def decoder(self) -> str:
        """The fairseq command that decodes with the trained model; a masked language model has nothing to decode."""
        return "fairseq-generate" if self.task == "translation" else "fairseq-eval-lm"

    def override_sections(self) -> dict[Key, Overrides]:
        """Return every section that overrides the recipe, by its key in the file."""
        sections: dict[Key, Overrides] = {("architectures", p): section for p, section in self.architectures.items()}
        for name, patterns in self.variants.items():
            sections |= {("variants", name, pattern): section for pattern, section in patterns.items()}
        return sections

    def for_arch(self, arch: str | None, variant: str | None = None) -> Recipe:
        """Return the recipe with an architecture's overrides applied and removed.

        :param arch: None for the default in the recipe's size
        :param variant: one of ``variants``
        :raises UserError: the recipe has no such variant, or it changes nothing for this architecture
        """
        chosen = arch or self.arch
        size = self.size if chosen == self.arch else {}  # it fits no other
        applied, left_out = ({}, size) if arch else (size, {})
        overrides = _matching(self.architectures, chosen)
        if variant is not None:
            overrides += (of_variant := _matching(self.variants.get(variant, {}), chosen))
            if not of_variant:
                names = [name for name, patterns in self.variants.items() if _matching(patterns, chosen)]
                raise UserError(f"--variant {variant}: for {chosen} there is {', '.join(names) or 'none'}")
        flags = {"train": self.train | applied, "generate": self.generate}
        changes: dict[str, Any] = {"arch": chosen, "size": left_out, "architectures": {}, "variants": {}}
        for section in overrides:
            values = {name: getattr(section, name) for name in section.model_fields_set}
            flags = {name: earlier | values.pop(name, {}) for name, earlier in flags.items()}
            changes |= values
        chosen_data = self.prepared_as(changes.get("preparation", self.preparation))
        return chosen_data.model_copy(update=changes | flags)

    def prepared_as(self, name: str | None) -> Recipe:
        """Return a copy with one of ``preparations`` applied; None changes nothing.

        :raises pydantic.ValidationError: the keys do not go together
        """
        if name is None:
            return self
        preparation = self.preparations[name]
        corpus = _replace_keys(self.corpus, preparation.corpus)
        vocabulary = _replace_keys(self.vocabulary, preparation.vocabulary)
        changes = {
            "corpus": TypeAdapter(Corpus).validate_python(corpus),
            "vocabulary": TypeAdapter(Vocabulary).validate_python(vocabulary),
            "counts": preparation.counts or self.counts,
            "preparation": name,
            "preparations": {},
        }
        return self.model_copy(update=changes)

    def with_data_of(self, recipe: Recipe) -> Recipe:
        """Return a copy that is trained on the data of another recipe and scored like it."""
        names = ("corpus", "vocabulary", "counts", "preparation", "score")
        return self.model_copy(update={name: getattr(recipe, name) for name in names})


def _replace_keys(section: YamlSection, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a section of the file with some of its keys replaced."""
    values = (
        {} if "kind" in changes else section.model_dump(exclude_unset=True) | {"kind": getattr(section, "kind", None)}
    )
    return {key: value for key, value in (values | dict(changes)).items() if value is not None}


def _matching(patterns: Mapping[str, Overrides], arch: str) -> list[Overrides]:
    return [overrides for pattern, overrides in patterns.items() if fnmatchcase(arch, pattern)]


def _missing_sources(recipe: Recipe) -> Iterator[Problem]:
    source_list = recipe.source_list()
    for name in recipe.corpus.sources:
        if name not in source_list:
            yield ("corpus",), f"{name}: {missing_source_help(name, source_list)}"


def _inconsistencies(recipe: Recipe) -> Iterator[Problem]:
    """Yield the parts of a recipe that contradict each other, and sources that do not exist."""
    yield from _missing_sources(recipe)
    sections = recipe.override_sections()
    for key, part in ({(): recipe} | sections).items():
        if part.preparation is not None and part.preparation not in recipe.preparations:
            known = ", ".join(recipe.preparations) or "none"
            yield (*key, "preparation"), f"{part.preparation}: preparations has {known}"
    for name in recipe.preparations:
        yield from _preparation_problems(recipe, name)
    scorings: dict[Key, list[Scoring]] = {("score",): recipe.score}
    scorings |= {(*key, "score"): overrides.score for key, overrides in sections.items() if overrides.score is not None}
    titles: list[str] = []
    for key, scoring in scorings.items():
        titles_here = recipe.model_copy(update={"score": scoring}).score_titles
        if repeated := [title for title in titles_here if titles_here.count(title) > 1]:
            yield key, f"two scores are called {repeated[0]}"
        for number, one_score in enumerate(scoring):
            if problem := _score_problem(one_score, recipe.corpus):
                yield (*key, number), problem
            try:
                check_score_options(one_score, recipe.task == "language_modeling")
            except UserError as error:
                yield (*key, number, "options"), str(error)
        titles += (title for title in titles_here if title not in titles)
    for number, entry in enumerate(recipe.expected):
        for name in sorted(set(entry.scores) - set(titles)):
            yield ("expected", number, "scores", name), f"no score has this name; there are {', '.join(titles)}"
    all_scores = [entry for scoring in scorings.values() for entry in scoring]
    if recipe.score_valid and recipe.task == "translation" and any(entry.against != "tokens" for entry in all_scores):
        yield ("score_valid",), "the references of the validation set are tokens: no score against others"
    if "max-tokens" not in recipe.train:
        yield ("train",), "max-tokens is missing: what one GPU takes at a time"


def _score_problem(scoring: Scoring, corpus: Corpus) -> str | None:
    """Return why an entry of ``score`` does not suit the data, or None."""
    metric, name = METRICS[scoring.metric], scoring.metric
    if metric.scores is None:
        return f"how many scores {name} has depends on the output; give the output to ode-transformer score"
    if len(scoring.names) != metric.scores:
        return f"names: {name} needs {metric.scores}, one for each score"
    if (scoring.against == "m2") != ("gold" in metric.needs):
        return f"against: {name} is measured against {'m2' if 'gold' in metric.needs else 'tokens or raw'}"
    if scoring.against == "m2" and not corpus.has_corrections:
        return f"against: m2: a corpus of the kind {corpus.kind} has no file of corrections"
    if "more_references" not in metric.options and any(map(corpus.further_references, corpus.tests)):
        return f"{name} takes one reference, and a test set has several"
    return None


def check_score_options(scoring: Scoring, of_language_model: bool) -> None:
    """Check that ``ode-transformer score`` takes the options of an entry of ``score``.

    :raises UserError: it does not
    """
    log = "eval-lm-log" if of_language_model else "generate-log"
    references = "gold" if scoring.against == "m2" else "references"
    flags = commands.flags({"metric": scoring.metric, log: "log", references: "text", **scoring.options})
    parse_settings(parse_recorded(["ode-transformer", "score", *flags]))


def _preparation_problems(recipe: Recipe, name: str) -> Iterator[Problem]:
    try:
        recipe.prepared_as(name)
    except ValidationError as error:
        entry = error.errors()[0]
        part = "vocabulary" if "Vocabulary" in error.title else "corpus"
        yield ("preparations", name, part, *entry["loc"][1:]), entry["msg"].removeprefix("Value error, ")


def read_recipe(path: Path, *checks: Callable[[Recipe], Iterator[Problem]]) -> Recipe:
    """Read and check a recipe.

    :param checks: further checks, such as ``flag_checks.fairseq_problems``
    :raises UserError: names the file and the key of the first problem
    """
    recipe = read_yaml(path, Recipe)
    for check in (_inconsistencies, *checks):
        for key, problem in check(recipe):
            raise key_error(path, key, problem)
    own_sources = {
        name: str(path.parent / source)
        if isinstance(source, str)
        else source.model_copy(update={"file": f"recipes/{path.stem}/{source.file}"})  # never an official source's file
        for name, source in recipe.sources.items()
    }
    return recipe.model_copy(update={"sources": own_sources})
