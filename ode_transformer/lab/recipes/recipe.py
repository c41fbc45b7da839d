"""Recipe file format: a data set and how it is prepared, trained on, decoded and scored."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, TypeAdapter, model_validator

from ode_transformer.lab.corpora.corpus import fairseq_test_split
from ode_transformer.lab.corpora.download import AnySource, Source, read_sources
from ode_transformer.lab.corpora.kinds import Corpus
from ode_transformer.lab.corpora.vocabulary import Vocabulary
from ode_transformer.lab.metrics.registry import METRICS
from ode_transformer.lab.recipes.options import RunOptions, find_recipe
from ode_transformer.support.errors import UserError, did_you_mean
from ode_transformer.support.yaml_file import YamlSection, read_yaml

Count = Annotated[int, Field(gt=0)]
FlagValue = bool | int | float | str
Flags = dict[str, FlagValue]  # of a command of fairseq, without the dashes
Layer = tuple[str, dict[str, Any]]  # a section that overrides others: its key in the file, its values


class Average(YamlSection):
    """The checkpoints that make up the decoded model: the last ones, or the best one.

    :param by: what the checkpoints are saved after: each epoch, or every ``every`` updates
    :param every: updates between two checkpoints
    :param best: take the checkpoint with the lowest validation loss instead
    :param compare: take the last or the best checkpoint instead if its validation loss is lower than the average's
    """

    last: Count | None = None
    by: Literal["epoch", "update"] = "epoch"
    every: Count | None = None
    best: Literal[True] | None = None
    compare: bool = False

    @model_validator(mode="after")
    def _check_alternatives(self) -> "Average":
        if (self.last is None) == (self.best is None) or (self.by == "update") != (self.every is not None):
            raise ValueError("say either last: N or best: true; by: update goes with every: N, the updates between two")
        return self

    def train_flags(self) -> dict[str, int | None]:
        """Return the flags of fairseq-train that save and keep these checkpoints."""
        if self.by == "epoch":
            return {"no-epoch-checkpoints": self.best, "keep-last-epochs": self.last}
        intervals = {"save-interval-updates": self.every, "keep-interval-updates": self.last}
        return {"no-epoch-checkpoints": True, **intervals}


class Scoring(YamlSection):
    """A measure of the decoded test sets.

    :param names: of its scores in tables
    :param metric: of ``ode-transformer score``
    :param against: the references: tokenised as the model's output is, the raw text, or corrections in an M2 file
    :param options: further flags of ``ode-transformer score``
    """

    names: Annotated[list[str], Field(min_length=1)]
    metric: str
    against: Literal["tokens", "raw", "m2"] = "tokens"
    options: Flags = {}

    @model_validator(mode="after")
    def _check_metric(self) -> "Scoring":
        counts = {name: metric.scores for name, metric in METRICS.items() if metric.scores}
        if counts.get(self.metric) != len(self.names):
            raise ValueError(f"{self.metric}: metrics, with their numbers of names, are {counts}")
        return self


class PublishedResult(YamlSection):
    """A published result.

    :param system: its name in the paper
    :param arch: the architecture that stands for the system
    :param flags: of fairseq-train, where the system differs from the architecture's default
    :param scores: by the names of the recipe's scores
    :param parameters: published count, in millions
    :param against: title of the system of this table that the paper tests it against, as it says with a dagger
    """

    table: str
    system: str
    arch: str
    variant: str | None = None
    flags: Flags = {}
    scores: dict[str, float]
    parameters: int | None = None
    against: str | None = None

    @property
    def title(self) -> str:
        """Name of the system with its variant, which another row of the table may not have."""
        return f"{self.system} ({self.variant})" if self.variant else self.system


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
    """Values that replace the recipe's for some architectures; see ``Recipe``."""

    preparation: str | None = None
    score: list[Scoring] | None = None
    tokens_per_update: Count | None = None
    average: Average | None = None
    train: Flags = {}
    generate: Flags = {}


class Recipe(YamlSection):
    """A data set and how it is prepared, trained on, decoded and scored.

    :param corpus: how its text is built, see ``corpora``
    :param sources: raw files beside those of ``configs/sources.yaml``: name -> path relative to the recipe, or an entry
        as in that file
    :param vocabulary: how the text is divided into the pieces that the model reads
    :param tokens_per_update: on all GPUs together, whatever their number; target tokens, or source if these are more
    :param threads: of training and decoding on a CPU, where a second one gains nothing and waits on a busy machine; all
        processors if there is none
    :param average: checkpoints of the decoded model
    :param train: flags of fairseq-train; ``max-tokens`` is the load of one GPU
    :param generate: flags of fairseq-generate, or of fairseq-eval-lm for a language model
    :param size: flags of fairseq-train that fit any architecture to the data, see ``size_flags``; a variant goes
        without them
    :param architectures: pattern of names -> values that differ for them; of several matches the last wins
    :param variants: name -> another such table, for ``--variant``: where a paper and its code differ, where other
        architectures are trained as in one paper, or a small size
    :param preparations: other preparations of the data, by names that architectures and variants refer to
    :param preparation: the chosen one of them; None for the recipe's own
    :param score_valid: whether the validation set is decoded and scored, too
    :param counts: published sizes: lines of the splits, and ``dictionary``
    """

    title: str
    corpus: Corpus
    sources: dict[str, str | Source] = {}
    vocabulary: Vocabulary
    arch: str
    task: Literal["translation", "language_modeling", "masked_lm"] = "translation"
    tokens_per_update: Count
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
    _layers: list[Layer] = PrivateAttr(default=[])

    @model_validator(mode="after")
    def _check_expected(self) -> "Recipe":
        titles = {(result.table, result.title) for result in self.expected}
        for result in self.expected:
            if result.against is not None and (result.table, result.against) not in titles:
                raise ValueError(f"{result.table}, {result.title}: against {result.against}: no such row of this table")
        return self

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
        return [self.score_title(name, split) for entry in self.score for name in entry.names for split in self.sets]

    @property
    def decoder(self) -> str:
        """The fairseq command that decodes with the trained model; a masked language model has nothing to decode."""
        return "fairseq-generate" if self.task == "translation" else "fairseq-eval-lm"

    def layers(self, arch: str | None, variant: str | None = None) -> list[Layer]:
        """Return the sections that apply to an architecture; a later one replaces values of an earlier one.

        :param arch: None for the default
        :param variant: one of ``variants``
        :raises UserError: the recipe has no such variant, or it changes nothing for this architecture
        """

        chosen = arch or self.arch

        def matching(section: str, patterns: Mapping[str, Overrides]) -> list[Layer]:
            return [
                (f"{section}.{pattern}", {name: getattr(values, name) for name in values.model_fields_set})
                for pattern, values in patterns.items()
                if fnmatchcase(chosen, pattern)
            ]

        recipe: Layer = ("the recipe", {"train": self.train, "generate": self.generate})
        layers = matching("architectures", self.architectures)
        if variant is None:
            size = self.size if chosen == self.arch else size_flags(self.size, chosen)
            return [recipe, ("size", {"train": size}), *layers]
        if not (of_variant := matching(f"variants.{variant}", self.variants.get(variant, {}))):
            names = [name for name, patterns in self.variants.items() if matching(name, patterns)]
            raise UserError(f"--variant {variant}: for {chosen} there is {', '.join(names) or 'none'}")
        return [recipe, *layers, *of_variant]

    def for_arch(self, arch: str | None, variant: str | None = None) -> "Recipe":
        """Return the recipe with the ``layers`` of an architecture merged into it."""
        flags: dict[str, dict[str, Any]] = {"train": {}, "generate": {}}
        values: dict[str, Any] = {"arch": arch or self.arch, "size": {}, "architectures": {}, "variants": {}}
        layers = self.layers(arch, variant)
        for _, section in layers:
            for name, value in section.items():
                if name in flags:
                    flags[name] |= value
                else:
                    values[name] = value
        chosen_data = self.prepared_as(values.get("preparation", self.preparation))
        chosen = chosen_data.model_copy(update=values | flags)
        chosen._layers = layers
        return chosen

    @property
    def train_layers(self) -> list[tuple[str, Flags]]:
        """The sections that :meth:`for_arch` has merged into ``train``, with their flags."""
        return [(key, section.get("train", {})) for key, section in self._layers]

    def prepared_as(self, name: str | None) -> "Recipe":
        """Return a copy with one of ``preparations`` applied; None changes nothing."""
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

    def with_data_of(self, recipe: "Recipe") -> "Recipe":
        """Return a copy that is trained on the data of another recipe and scored like it."""
        names = ("corpus", "vocabulary", "counts", "preparation", "score")
        return self.model_copy(update={name: getattr(recipe, name) for name in names})


def size_flags(size: Flags, arch: str) -> Flags:
    """Return the flags of a recipe's size that an architecture has; what only some schemes use is its own."""
    from ode_transformer.models.model_from_options import model_flags
    from ode_transformer.nn import DepthChoice

    names = {name for action in model_flags(arch) for name in action.option_strings}
    names -= {f"--{option.flag}" for option in DepthChoice.options().values() if option.needs}
    return {name: value for name, value in size.items() if f"--{name}" in names}


def _replace_keys(section: YamlSection, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a section of the file with some of its keys replaced."""
    values = section.model_dump(exclude_unset=True) | {"kind": getattr(section, "kind", None)}
    replaced = changes if "kind" in changes else values | dict(changes)
    return {key: value for key, value in replaced.items() if value is not None}


def read_recipe(path: Path) -> Recipe:
    """Read a recipe; the paths of its own files become relative to the working directory."""
    recipe = read_yaml(path, Recipe)
    own_sources = {
        name: str(path.parent / source)
        if isinstance(source, str)
        else source.model_copy(update={"file": f"recipes/{path.stem}/{source.file}"})  # never an official source's file
        for name, source in recipe.sources.items()
    }
    return recipe.model_copy(update={"sources": own_sources})


def load_recipe(name: str, options: RunOptions) -> Recipe:
    """Read a recipe, and apply the user's architecture, variant and number of averaged checkpoints.

    :raises UserError: there is no such recipe, architecture or variant, or something in the recipe is wrong
    """
    return choose_system(read_recipe(find_recipe(name)), options)


def choose_system(recipe: Recipe, options: RunOptions) -> Recipe:
    """Return a recipe with the user's architecture, variant and number of averaged checkpoints."""
    check_architecture(options.arch or recipe.arch, recipe.task, f"--arch {options.arch or recipe.arch}")
    recipe = recipe.for_arch(options.arch, options.variant)
    if options.average is None:
        return recipe
    average = Average(last=options.average, by=recipe.average.by, every=recipe.average.every)
    return recipe.model_copy(update={"average": average})


def package_architectures(task: str) -> list[str]:
    """Return the names of this package's architectures for a task, with those of installed packages."""
    from ode_transformer.nn import ARCHITECTURES, MODELS
    from ode_transformer.nn.plugins import load_plugins

    load_plugins()
    return sorted(name for name, architecture in ARCHITECTURES.items() if MODELS[architecture.model][0] == task)


def check_architecture(arch: str, task: str, source: str) -> None:
    """Refuse an architecture that is unknown or unsuitable for a task; ``source`` is the flag or key that names it."""
    ours = package_architectures(task)
    if arch in ours:
        return
    names = {*ours, *_fairseq_architectures(task)}
    if arch not in names:
        raise UserError(f"{source}: no architecture for {task}{did_you_mean(arch, names)}; ours are {', '.join(ours)}")


def _fairseq_architectures(task: str) -> list[str]:
    """Return the names of all architectures for a task that are registered with fairseq; none where it is missing."""
    if find_spec("fairseq") is None:
        return []
    from fairseq.models import ARCH_MODEL_REGISTRY, FairseqEncoderDecoderModel, FairseqLanguageModel
    from fairseq.models.roberta import RobertaModel

    import ode_transformer.models  # noqa: F401  (registers ours)

    kinds = {"translation": FairseqEncoderDecoderModel, "language_modeling": FairseqLanguageModel}
    kind = kinds.get(task, RobertaModel)
    return sorted(name for name, model in ARCH_MODEL_REGISTRY.items() if issubclass(model, kind))
