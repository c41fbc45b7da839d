"""An experiment: a recipe with one architecture, and its commands that train, decode and score.

DATA/                       of preparation.RecipeData
RUN = DATA/ARCH-FLAGS/
    checkpoints/  train.log  tensorboard/  trained.json
    model/                  the averaged model with dictionaries and pieces, complete for translation
    generate.test.log  scores.json
    experiment.json         recipe, commands and published results, for ode-transformer report
"""

import math
import shlex
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ode_transformer.lab.analysis.training_log import read_log
from ode_transformer.lab.metrics.registry import METRICS
from ode_transformer.lab.recipes import machine, training
from ode_transformer.lab.recipes.machine import Batch, Machine
from ode_transformer.lab.recipes.options import RunOptions
from ode_transformer.lab.recipes.preparation import RecipeData
from ode_transformer.lab.recipes.recipe import Recipe, Scoring
from ode_transformer.models import fairseq_parser
from ode_transformer.models.admission import is_of_this_package
from ode_transformer.models.criteria import COUNTERPARTS
from ode_transformer.models.model_from_options import build_outline
from ode_transformer.nn import STACKS
from ode_transformer.support import commands
from ode_transformer.support.arguments import MAX_LENGTH
from ode_transformer.support.errors import UserError
from ode_transformer.support.jobs import Jobs
from ode_transformer.support.tables import markdown_table

Command = list[str | Path]

GPU_WORKERS = 1  # processes that prepare batches while a GPU computes
LARGE_GPU_FACTOR = 4  # times a recipe's tokens of a pass, where a GPU has the memory for them
SHORT_RUN = 5.0  # minutes of --minutes, below which a run is a trial: only its first sentences are decoded and scored
FIRST_SENTENCES = 200

# A sentence of validation or test that is longer than the model's positions would end the command.
SKIP_LONG_SENTENCES = {"skip-invalid-size-inputs-valid-test": True}

# Flags that may change between two parts of the same training: those of place, time, log and kept checkpoints.
CHANGEABLE_FLAGS = {
    *("log-depth-interval", "log-samples", "user-dir", "stop-time-hours", "save-dir", "tensorboard-logdir"),
    *("cuda-graphs", "ddp-backend", "max-tokens-valid", *SKIP_LONG_SENTENCES),
    *("no-epoch-checkpoints", "keep-last-epochs", "save-interval-updates", "keep-interval-updates"),
}


@dataclass(frozen=True)
class Experiment:
    """A recipe with one architecture, on a machine.

    :param recipe: with the architecture's overrides applied
    :param seed: of the training; None for the recipe's
    """

    recipe: Recipe
    data: RecipeData
    machine: Machine
    options: RunOptions = RunOptions()
    seed: int | None = None

    def run_name(self, seed: int | None = None) -> str:
        """Return the name of the folder of a run; it tells the run from those with other flags or another seed."""
        options = {"variant": self.options.variant, "seed": seed}
        return training.run_name(self.recipe.arch, [*commands.flags(options), *self.options.train_flags])

    @cached_property
    def folder(self) -> Path:
        return self.data.folder / self.run_name(self.seed)

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def log(self) -> Path:
        return self.folder / "train.log"

    @property
    def model_path(self) -> Path:
        return self.folder / "model" / "model.pt"

    def run(
        self, command: Command, log: Path, progress: Callable[[str], None] | None = None, append: bool = False
    ) -> None:
        """Run a command of this experiment with the recipe's threads, see ``commands.run``."""
        commands.run(command, log, progress, append, threads=self.recipe.threads)

    # -- train ---------------------------------------------------------------------------------------------------

    @cached_property
    def batch(self) -> Batch:
        """The division of an update's tokens over the machine; their number is the recipe's on every machine."""
        return machine.plan_batch(self.recipe.tokens_per_update, self._max_tokens_per_process, self.machine.processes)

    @property
    def _max_tokens_per_process(self) -> int:
        tokens = int(self.recipe.train["max-tokens"]) * (LARGE_GPU_FACTOR if self.machine.large_gpus else 1)
        return self.options.max_tokens or tokens

    @property
    def _users_flags(self) -> set[str]:
        """The flags among the user's words, which come after all others."""
        return {word.partition("=")[0] for word in self.options.train_flags}

    def train_layers(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Return the flags of fairseq-train by their source; a later source replaces what an earlier one says.

        Words of the user come after them all, and flags that nobody sets have the architecture's or fairseq's values.
        """
        recipe, minutes, user_dir = self.recipe, self.options.minutes, commands.USER_DIR.get()
        task = {"user-dir": user_dir, "task": recipe.task, **self.data.language_flags(), "arch": recipe.arch}
        log: dict[str, Any] = {"log-format": "json", "log-interval": 100}
        layers = recipe.train_layers
        if not is_of_this_package(recipe.arch):  # fairseq's own have no such flag
            layers = [(name, {f: v for f, v in flags.items() if f != "log-depth-interval"}) for name, flags in layers]
        elif recipe.task == "translation":
            log["log-samples"] = 2
        return [
            ("every run", {**task, **log, **training.RESUMABLE_FLAGS, **SKIP_LONG_SENTENCES}),
            ("average", recipe.average.train_flags()),
            *layers,
            ("batch", {"max-tokens-valid": max(self._max_tokens_per_process, training.MAX_SENTENCE_TOKENS)}),
            ("tokens_per_update", self.batch.flags()),
            ("machine", self.machine.flags(self._keeps_own_copy)),
            ("GPU", self._gpu_flags),
            ("--seed", {"seed": recipe.train.get("seed", 1) if self.seed is None else self.seed}),
            ("minutes", {"stop-time-hours": None if minutes is None else round(minutes / 60, 4)}),
            ("--output", {"save-dir": self.checkpoints, "tensorboard-logdir": self.folder / "tensorboard"}),
        ]

    @property
    def _gpu_flags(self) -> dict[str, Any]:
        """The flags of a training on GPUs; ``cuda-graphs: false`` among the recipe's flags leaves CUDA graphs out."""
        train = self.recipe.train
        flags: dict[str, Any] = {"num-workers": GPU_WORKERS}
        if not self.machine.gpus:
            return {}
        is_recorded = str(train.get("criterion")).startswith("fused_") and "--criterion" not in self._users_flags
        if is_recorded and train.get("cuda-graphs", True) and is_of_this_package(self.recipe.arch):
            flags |= {"cuda-graphs": True} | ({"ddp-backend": "legacy_ddp"} if self.machine.processes > 1 else {})
        return flags

    @property
    def _keeps_own_copy(self) -> bool:
        """True where ``fused_adam`` trains in half precision, which keeps the float32 copy of the parameters itself."""
        is_fused = self.recipe.train.get("optimizer") == "fused_adam" and "--optimizer" not in self._users_flags
        return is_fused and self.machine.precision != "fp32"

    def train_options(self) -> dict[str, Any]:
        return {name: value for _, flags in self.train_layers() for name, value in flags.items()}

    def train_sources(self) -> str:
        """Return a table of the flags of fairseq-train with their values and sources."""
        sources = {name: source for source, flags in self.train_layers() for name in flags}
        flags_by_name = {name: commands.flags({name: value}) for name, value in self.train_options().items()}
        rows = [[*(flag + [""])[:2], sources[name]] for name, flag in flags_by_name.items() if flag]
        rows.append([shlex.join(self.options.train_flags), "", "the study, or words after --"])
        return markdown_table(["flag", "value", "from"], rows, "lll")

    def train_words(self) -> list[str]:
        """Return the command line of fairseq-train without the program's name."""
        return list(map(str, [self.data.binary, *commands.flags(self.train_options()), *self.options.train_flags]))

    def train_command(self) -> Command:
        """Return the command that trains, as a user would type it."""
        return [*self.machine.launcher(), "fairseq-train", *self.train_words()]

    def digest(self, data: Jobs) -> str:
        """Return the digest that identifies the training: its data and flags, but not machine, time and place."""
        flags = self.train_options() | training.RESUMABLE_FLAGS  # the machine's workers are no part of the training
        for name in CHANGEABLE_FLAGS | set(self.batch.flags()) | set(self.machine.flags()):
            flags.pop(name, None)
        for name in ("optimizer", "criterion"):  # either resumes the checkpoints of the other
            flags[name] = COUNTERPARTS.get(str(flags.get(name)), flags.get(name))
        return data.digest_of([self.recipe.tokens_per_update, commands.flags(flags), self.options.train_flags])

    @cached_property
    def train_settings(self) -> Namespace:
        """The options of fairseq-train, as it reads its command line."""
        return fairseq_parser.parse_training(self.train_words())

    def model_description(self, dictionaries: Sequence[int] = ()) -> str:
        """Return architecture and layers in words, and the number of parameters with dictionaries of these sizes."""
        stacks = {"language_modeling": ["decoder"], "masked_lm": ["encoder"]}.get(self.recipe.task, STACKS)
        layers = " + ".join(str(getattr(self.train_settings, f"{stack}_layers", "?")) for stack in stacks)
        description = f"{self.recipe.arch}: {layers} layers"
        if dictionaries:
            parameters = build_outline(self.train_settings, dictionaries).parameters()
            description += f", {sum(parameter.numel() for parameter in parameters):,} parameters"
        return description

    @property
    def description(self) -> str:
        """Model, batch and machine in words; parameters are counted once the data are prepared."""
        sizes = self.data.dictionary_sizes() if self.data.is_prepared() else ()
        overridden = ", ".join(sorted({"--max-tokens", "--update-freq", "--batch-size"} & self._users_flags))
        batch = f"batches as {overridden} after -- makes them" if overridden else self.batch
        return f"{self.model_description(sizes)}\n{batch}; {self.machine}"

    def training_progress(self) -> training.TrainingProgress:
        """Return the progress of the training, which counts the minutes before it was stopped."""
        minutes = 0.0
        if training.has_checkpoints(self.checkpoints) and self.log.exists():
            with suppress(UserError):  # a log without reports: no reason to train nothing
                minutes = max((point.minutes or 0.0 for point in read_log(self.log)), default=0.0)
        warmup = getattr(self.train_settings, "warmup_updates", 0)
        limit = self.options.minutes or math.inf
        return training.TrainingProgress(limit, minutes, self.last_update(), warmup=warmup)

    def last_update(self) -> int | None:
        """Return the update that ends the training; None if something else does."""
        return self.train_settings.max_update or None

    # -- evaluate ------------------------------------------------------------------------------------------------

    def average_command(self, name: str | None = None) -> Command:
        """Return the command that writes the model of the recipe's checkpoints, or of one: ``best`` or ``last``."""
        average = self.recipe.average
        if name is None and average.last:
            checkpoints: Command = [self.checkpoints, *commands.flags({"last": average.last, "by": average.by})]
        else:
            checkpoints = [self.checkpoints / f"checkpoint_{name or 'best'}.pt"]
        return ["ode-transformer", "checkpoint", "average", *checkpoints, "--output", self.model_path]

    def validation_command(self) -> Command:
        """Return the command that measures the validation loss of the model."""
        batch = {"max-tokens": max(self._max_tokens_per_process, training.MAX_SENTENCE_TOKENS)}
        options = {**self._model_options(), **batch, "log-format": "json"}
        return ["fairseq-validate", self.data.binary, *commands.flags(options)]

    @property
    def first_sentences(self) -> Path | None:
        """Folder with the first sentences of each set, all that a short run decodes; None for the whole sets."""
        is_short = self.options.minutes is not None and self.options.minutes < SHORT_RUN
        return self.folder / "first" if is_short and self.data.parallel else None

    def _model_options(self, split: str | None = None) -> dict[str, Any]:
        """Return the flags with which fairseq's commands load the model, and the split that they decode."""
        return {
            "user-dir": commands.USER_DIR.get(),
            "task": self.recipe.task,
            **self.data.language_flags(),
            "path": self.model_path,
            "gen-subset": split,
            "cpu": self.machine.gpus == 0,
            "fp16": self.machine.precision == "fp16",
            "bf16": self.machine.precision == "bf16",
            "distributed-world-size": 1,  # by default fairseq counts the GPUs and decodes one GPU's share of the set
            "required-batch-size-multiple": 1,
            **SKIP_LONG_SENTENCES,
        }

    def decode_command(self, split: str) -> Command:
        """Return the command that translates a test set, or measures a language model on it."""
        limit = dict(zip(("max-len-a", "max-len-b"), MAX_LENGTH, strict=True)) if self.data.parallel else {}
        options = {
            **self._model_options(split),
            "remove-bpe": self.recipe.vocabulary.remove_bpe if self.data.parallel else None,
            "log-interval": 1,  # for the progress
            "dataset-impl": "raw" if self.first_sentences else None,
            **({} if limit.keys() & self.recipe.generate.keys() else limit),
            **self.recipe.generate,
        }
        return [self.recipe.decoder, self.first_sentences or self.data.binary, *commands.flags(options)]

    def decode_log(self, split: str) -> Path:
        return self.folder / f"generate.{split}.log"

    def score_command(self, scoring: Scoring, split: str) -> Command:
        """Return the command that scores the decoded text of a split."""
        log = {"generate-log" if self.data.parallel else "eval-lm-log": self.decode_log(split)}
        score = ["ode-transformer", "score", *commands.flags({"metric": scoring.metric, **log, **scoring.options})]
        references = [(self.first_sentences or self.data.corpus) / name for name in self.references(scoring, split)]
        kind = "--gold" if scoring.against == "m2" else "--references"
        return [*score, *([kind] if references else []), *references, "--json"]

    def sentence_score_commands(self) -> dict[str, Command]:
        """Return title -> command of the scores of the first test set that follow from its sentences."""
        split = next((split for split in self.recipe.sets if split != "valid"), None)
        return {
            self.recipe.score_title(scoring.names[0], split): self.score_command(scoring, split)
            for scoring in self.recipe.score
            if split is not None and self.data.parallel and METRICS[scoring.metric].statistics
        }

    def references(self, scoring: Scoring, split: str) -> list[str]:
        """Return the names of the files of the corpus that a split is scored against; none: the log has them."""
        if scoring.against == "m2":
            return [f"{split}.m2"]
        if split == "valid" and self.data.parallel:
            return []  # some pairs are left out
        target = self.data.languages[-1]
        numbers = range(1, self.recipe.corpus.further_references(self.recipe.sets[split]) + 1)
        further = [f"{scoring.against}{number}.{split}.{target}" for number in numbers]
        return [f"{split}.{target}" if scoring.against == "tokens" else f"raw.{split}.{target}", *further]

    def evaluation_commands(self) -> list[Command]:
        decode = [self.decode_command(split) for split in self.recipe.sets]
        score = [self.score_command(scoring, split) for split in self.recipe.sets for scoring in self.recipe.score]
        validate = [self.validation_command()] if self.recipe.average.compare else []
        return [self.average_command(), *validate, *decode, *score]

    @property
    def scores_path(self) -> Path:
        return self.folder / "scores.json"
