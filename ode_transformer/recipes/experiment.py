"""An experiment: a recipe with one architecture, and the commands that train, decode and score it.

DATA/                       of preparation.RecipeData
RUN = DATA/ARCH-FLAGS/
    checkpoints/  train.log  tensorboard/  trained.json
    model/                  the averaged model with dictionaries and pieces, complete for translation
    generate.test.log  scores.json
    experiment.json         recipe, commands and published results, for ode-transformer report
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from ode_transformer import __version__
from ode_transformer.checkpoints.averaging import numbered_checkpoints
from ode_transformer.metrics.metric import Score
from ode_transformer.recipes import machine, training
from ode_transformer.recipes.machine import Batch, Machine
from ode_transformer.recipes.preparation import RecipeData
from ode_transformer.recipes.published import published_results
from ode_transformer.recipes.recipe import Recipe, Scoring
from ode_transformer.recipes.training import TrainingRecord
from ode_transformer.support import commands
from ode_transformer.support.commands import PACKAGE
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import lock_directory, write_text
from ode_transformer.support.jobs import Jobs
from ode_transformer.support.provenance import provenance
from ode_transformer.training import COUNTERPARTS

Command = list[str | Path]

# Flags that may change between two parts of the same training: those of place, time, log and kept checkpoints.
CHANGEABLE_FLAGS = {
    *("log-depth-interval", "user-dir", "stop-time-hours", "save-dir", "tensorboard-logdir", "max-tokens-valid"),
    *("no-epoch-checkpoints", "keep-last-epochs", "save-interval-updates", "keep-interval-updates"),
}


@dataclass(frozen=True)
class Experiment:
    """A recipe with one architecture, on a machine.

    :param recipe: with the architecture's overrides applied
    :param data: of the recipe
    :param machine: that trains
    :param variant: of the recipe
    :param seed: of the training; None for the recipe's
    :param minutes: limit of the training time instead of the recipe's
    :param max_tokens: that one process takes at a time, instead of the recipe's; tokens of an update stay
    :param train_flags: words for fairseq-train, which override everything else
    """

    recipe: Recipe
    data: RecipeData
    machine: Machine
    variant: str | None = None
    seed: int | None = None
    minutes: float | None = None
    max_tokens: int | None = None
    train_flags: tuple[str, ...] = ()

    @cached_property
    def folder(self) -> Path:
        """Folder of the run; its name tells the run from runs with other flags."""
        return self.data.folder / self._run_name({"variant": self.variant, "seed": self.seed})

    @property
    def table_path(self) -> Path:
        """File of the table with the scores of all seeds."""
        return self.data.folder / f"{self._run_name({'variant': self.variant})}.md"

    def _run_name(self, options: dict[str, Any]) -> str:
        return training.run_name(self.recipe.arch, [*commands.flags(options), *self.train_flags])

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.folder / "checkpoints"

    @property
    def model_path(self) -> Path:
        """File of the averaged model."""
        return self.folder / "model" / "model.pt"

    @property
    def time_limit(self) -> float | None:
        """Minutes after which the training stops; None if something else ends it."""
        return self.minutes or self.recipe.minutes

    def run_command(self, command: Command, log: Path, progress: Callable[[str], None] | None = None) -> None:
        """Run a command of this experiment with the recipe's threads, see ``commands.run``."""
        commands.run(command, log, progress, threads=self.recipe.threads)

    # -- train ---------------------------------------------------------------------------------------------------

    @cached_property
    def batch(self) -> Batch:
        """The division of an update's tokens over the machine; their number is the recipe's on every machine."""
        return machine.divide(self.recipe.tokens_per_update, self._max_tokens_per_process, self.machine.processes)

    @property
    def _max_tokens_per_process(self) -> int:
        return self.max_tokens or int(self.recipe.train["max-tokens"])

    @property
    def batch_description(self) -> str:
        """The batch in words."""
        batch_flags = {"--max-tokens", "--update-freq", "--batch-size"}
        overridden = batch_flags & {word.partition("=")[0] for word in self.train_flags}
        return f"batches as {', '.join(sorted(overridden))} after -- makes them" if overridden else str(self.batch)

    def train_options(self) -> dict[str, Any]:
        """Return the flags of fairseq-train."""
        recipe, minutes = self.recipe, self.time_limit
        return {
            "user-dir": PACKAGE,
            "task": recipe.task,
            **self.data.language_flags(),
            "arch": recipe.arch,
            "log-format": "json",
            "log-interval": 100,
            **training.RESUMABLE_FLAGS,
            **recipe.average.train_flags(),
            **recipe.train,
            "max-tokens-valid": max(self._max_tokens_per_process, training.MAX_SENTENCE_TOKENS),
            **self.batch.flags(),
            **self.machine.flags(),
            "seed": recipe.train.get("seed", 1) if self.seed is None else self.seed,
            "stop-time-hours": None if minutes is None else round(minutes / 60, 4),
            "save-dir": self.checkpoints,
            "tensorboard-logdir": self.folder / "tensorboard",
        }

    def train_words(self) -> list[str]:
        """Return the command line of fairseq-train without the program's name."""
        return list(map(str, [self.data.binary, *commands.flags(self.train_options()), *self.train_flags]))

    def train_command(self) -> Command:
        """Return the command that trains, as a user would type it."""
        return [*self.machine.launcher(), "fairseq-train", *self.train_words()]

    def digest(self, data: Jobs) -> str:
        """Return the digest that identifies the training: its data and flags, but not machine, time and place.

        :param data: the completed jobs of preparation
        """
        flags = self.train_options()
        for name in CHANGEABLE_FLAGS | set(self.batch.flags()) | set(self.machine.flags()):
            flags.pop(name, None)
        for name in ("optimizer", "criterion"):  # either resumes the checkpoints of the other
            flags[name] = COUNTERPARTS.get(str(flags.get(name)), flags.get(name))
        return data.digest_of([self.recipe.tokens_per_update, commands.flags(flags), self.train_flags])

    def train(self, progress: Callable[[str], None] | None = None) -> None:
        """Train, or resume a stopped training.

        :param progress: called with every line that fairseq-train prints
        :raises UserError: the data were prepared for another recipe; the folder has checkpoints of another training
        """
        data, command = self.data.prepared_jobs(), self.train_command()
        print(f"{self.batch_description}; {self.machine}", flush=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.machine.rank > 0:  # only the first machine writes checkpoints and records
            commands.run(command, self.folder / f"train.node{self.machine.rank}.log", progress)
            return
        self.write_record()
        digest = self.digest(data)
        if training.has_checkpoints(self.checkpoints):
            TrainingRecord(self.folder).require(digest)  # before the job's record is deleted

        def run_training() -> None:
            threads, last = self.recipe.threads, self.last_update()
            training.train(command, self.folder, self.checkpoints, digest, progress, last, threads)
            origin = provenance(list(map(str, command)), self.machine.gpus > 0 and machine.on_gpu())
            write_text(self.provenance_path, json.dumps(origin, indent=1) + "\n")

        with lock_directory(self.folder, "training"):
            Jobs(self.folder, data.digest).run("train", self._train_request(data), self.checkpoints, run_training)

    def _train_request(self, data: Jobs) -> list[Any]:
        return [self.digest(data), self.train_options()["stop-time-hours"]]

    def last_update(self) -> int | None:
        """Return the update that ends the training; None if something else does."""
        command = self.train_words()
        values = [value for word, value in zip(command, command[1:], strict=False) if word == "--max-update"]
        return int(values[-1]) if values else None

    @property
    def provenance_path(self) -> Path:
        """File with the software, machine and command of the training, see ``provenance``."""
        return self.folder / "trained.json"

    def write_record(self) -> None:
        """Write ``experiment.json``: the recipe with its commands and published results."""
        recipe = self.recipe
        record = {
            **{"recipe": recipe.title, "corpus": recipe.corpus.kind, "task": recipe.task, "arch": recipe.arch},
            **{"variant": self.variant, "train_flags": self.train_flags},
            "commands": {
                "train": self.train_command(),
                **{f"decode {name}": self.decode_command(split) for split, name in recipe.sets.items()},
            },
            "scores": [
                {
                    **{"split": split, "titles": [recipe.score_title(name, split) for name in scoring.names]},
                    "command": self.score_command(scoring, split),
                }
                for split in recipe.sets
                for scoring in recipe.score
            ],
            "published": [
                {"table": result.table, "system": result.system, "scores": result.scores}
                for result in published_results(recipe, self.variant, self.train_flags)
            ],
        }
        write_text(self.folder / "experiment.json", json.dumps(record, indent=1, default=str) + "\n")

    # -- evaluate ------------------------------------------------------------------------------------------------

    def average_command(self, until: int | None = None) -> Command:
        """Return the command that writes the averaged model.

        :param until: leave out checkpoints after this epoch, or update
        """
        average = self.recipe.average
        if average.best:
            inputs: Command = [self.checkpoints / "checkpoint_best.pt"]
        elif count := self.averaged_count(until):
            inputs = [self.checkpoints, *commands.flags({"last": count, "by": average.by, "until": until})]
        else:
            inputs = [self.checkpoints / "checkpoint_last.pt"]
        return ["ode-transformer", "average", *inputs, "--output", self.model_path]

    def averaged_count(self, until: int | None = None) -> int:
        """Return the number of averaged checkpoints: the recipe's, or fewer if fewer exist.

        :raises UserError: none exists
        """
        average = self.recipe.average
        count = average.last or 0  # None where the best checkpoint decodes, which nothing averages
        if not self.checkpoints.is_dir():
            return count
        saved = [number for number in numbered_checkpoints(self.checkpoints, average.by) if number <= (until or number)]
        if not saved and (until or not (self.checkpoints / "checkpoint_last.pt").exists()):
            raise UserError(f"{self.checkpoints}: no checkpoint of an {average.by}; train first, or for longer")
        if not saved:
            print(f"{self.checkpoints}: no checkpoint of an {average.by} yet; the model is the last one, no average")
        elif len(saved) < count:
            print(f"{self.checkpoints}: {len(saved)} of the {count} {average.by} checkpoints to be averaged")
        return min(len(saved), count)

    def decode_command(self, split: str) -> Command:
        """Return the command that translates a test set, or measures a language model on it."""
        options = {
            "user-dir": PACKAGE,
            "task": self.recipe.task,
            **self.data.language_flags(),
            "path": self.model_path,
            "gen-subset": split,
            "cpu": self.machine.gpus == 0,
            "fp16": self.machine.precision == "fp16",
            "bf16": self.machine.precision == "bf16",
            "distributed-world-size": 1,  # by default fairseq counts the GPUs and decodes one GPU's share of the set
            "required-batch-size-multiple": 1,
            "remove-bpe": self.recipe.vocabulary.remove_bpe if self.data.parallel else None,
            **self.recipe.generate,
        }
        return [self.recipe.decoder, self.data.binary, *commands.flags(options)]

    def decode_log(self, split: str) -> Path:
        """Return the log of the command that decodes a split."""
        return self.folder / f"generate.{split}.log"

    def score_command(self, scoring: Scoring, split: str) -> Command:
        """Return the command that scores the decoded text of a split."""
        log = {"generate-log" if self.data.parallel else "eval-lm-log": self.decode_log(split)}
        score = ["ode-transformer", "score", *commands.flags({"metric": scoring.metric, **log, **scoring.options})]
        corpus, target = self.data.corpus, self.data.languages[-1]
        if scoring.against == "m2":
            return [*score, "--gold", corpus / f"{split}.m2", "--json"]
        if split == "valid" and self.data.parallel:
            return [*score, "--json"]  # some pairs are left out; the log has the references
        first = corpus / (f"{split}.{target}" if scoring.against == "tokens" else f"raw.{split}.{target}")
        numbers = range(1, self.recipe.corpus.further_references(self.recipe.sets[split]) + 1)
        further = [corpus / f"{scoring.against}{number}.{split}.{target}" for number in numbers]
        return [*score, "--references", first, *further, "--json"]

    def evaluation_commands(self) -> list[Command]:
        """Return the commands of the evaluation."""
        decode = [self.decode_command(split) for split in self.recipe.sets]
        score = [self.score_command(scoring, split) for split in self.recipe.sets for scoring in self.recipe.score]
        return [self.average_command(), *decode, *score]

    def evaluate(self, until: int | None = None) -> dict[str, Score]:
        """Average, decode and score; return the scores by title. Completed jobs are skipped.

        :param until: see ``average_command``
        :raises UserError: there are no checkpoints, or they belong to other data or flags
        """
        if not self.checkpoints.is_dir():
            raise UserError(f"{self.checkpoints}: not there; scripts/train.sh makes it, with the same --arch and flags")
        data = self.data.prepared_jobs()
        TrainingRecord(self.folder).require(self.digest(data))
        self.write_record()
        self.model_path.parent.mkdir(parents=True, exist_ok=True)
        for file in self.data.model_files:
            shutil.copy(file, self.model_path.parent)
        for split, name in self.recipe.sets.items():
            if split not in self.data.splits():
                print(f"{name}: left out, the data have no {split} split")
        jobs = Jobs(self.folder, data.digest)
        for job in self._evaluation_jobs(until):
            jobs.run(*job)
        scores = self._read_scores()
        for score in scores.values():
            print(score)
        return scores

    def is_trained(self) -> bool:
        """Return whether the training is complete.

        :raises UserError: the data are not prepared, or for another recipe
        """
        data = self.data.prepared_jobs()
        return Jobs(self.folder, data.digest).is_done("train", self._train_request(data), self.checkpoints)

    def existing_scores(self) -> dict[str, Score] | None:
        """Return the scores by title if training and evaluation are complete; None otherwise. Nothing is run.

        :raises UserError: the data are not prepared, or for another recipe
        """
        data = self.data.prepared_jobs()
        if not self.is_trained():
            if self.checkpoints.exists():
                print(f"{self.folder}: left out, the training has not ended, or not with these data and flags")
            return None
        jobs = Jobs(self.folder, data.digest)
        for name, request, result, _ in self._evaluation_jobs():
            if not jobs.is_done(name, request, result):
                print(f"{self.folder}: left out, trained but not evaluated as it is now ({name})")
                return None
            jobs.skip(name, request)
        return self._read_scores()

    def _evaluation_jobs(self, until: int | None = None) -> Iterator[tuple[str, Any, Path, Callable[[], None]]]:
        """Yield the name, request, result and work of each job of the evaluation."""
        average = self.average_command(until)
        files = [[path.name, path.stat().st_mtime_ns] for path in sorted(self.checkpoints.iterdir())]
        average_log, run = self.folder / "average.log", self.run_command
        yield "average", [self._portable(average), files], self.model_path, partial(run, average, average_log)
        splits = [split for split in self.recipe.sets if split in self.data.splits()]
        for split in splits:
            decode, log = self.decode_command(split), self.decode_log(split)
            yield f"decode {split}", self._portable(decode), log, partial(run, decode, log)
        score_commands = {
            split: [self._portable(self.score_command(scoring, split)) for scoring in self.recipe.score]
            for split in splits
        }
        request = [__version__, score_commands, self.recipe.sets]
        yield "score", request, self.scores_path, partial(self._write_scores, splits)

    def _portable(self, command: Command) -> list[str]:
        """Return a command without the words that depend on the machine or on the folder of the data."""
        relative = [str(word).replace(str(self.data.folder), "") for word in command]
        return [word for word in relative if word not in ("--cpu", "--fp16", "--bf16", str(PACKAGE))]

    @property
    def scores_path(self) -> Path:
        """File of the scores."""
        return self.folder / "scores.json"

    def _read_scores(self) -> dict[str, Score]:
        return {title: Score(**entry) for title, entry in json.loads(self.scores_path.read_text()).items()}

    def _write_scores(self, splits: Sequence[str]) -> None:
        scores = {title: asdict(score) for split in splits for title, score in self.score(split).items()}
        write_text(self.scores_path, json.dumps(scores, indent=1) + "\n")

    def score(self, split: str) -> dict[str, Score]:
        """Score a decoded set; return the recipe's scores by title.

        :raises UserError: a measure gives another number of scores than the recipe has names for
        """
        scores: dict[str, Score] = {}
        log = self.folder / f"score-{split}.log"
        for number, scoring in enumerate(self.recipe.score):
            lines: list[str] = []
            commands.run(self.score_command(scoring, split), log, lines.append, append=number > 0)
            measured = [Score(**json.loads(line)) for line in lines if line.startswith("{")]
            if len(measured) != len(scoring.names):
                metrics = ", ".join(score.metric for score in measured)
                raise UserError(f"the recipe's names {', '.join(scoring.names)}: {scoring.metric} gives {metrics}")
            for name, score in zip(scoring.names, measured, strict=True):
                title = self.recipe.score_title(name, split)
                scores[title] = replace(score, metric=title)
        return scores
