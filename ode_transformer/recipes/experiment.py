"""A recipe with one architecture: the commands that train, decode and score it, in the order in which they run.

DATA/                       of preparation.Data
RUN = DATA/ARCH-FLAGS/
    checkpoints/  train.log  tensorboard/
    model/                  the averaged model with dictionaries and pieces, complete for translation
    generate.test.log  scores.json
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
from ode_transformer.recipes.preparation import Data
from ode_transformer.recipes.recipe import Recipe, Scoring
from ode_transformer.support import commands
from ode_transformer.support.commands import PACKAGE
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import lock_directory, write_text
from ode_transformer.support.jobs import Jobs
from ode_transformer.support.provenance import provenance


@dataclass(frozen=True)
class Experiment:
    """
    :param recipe: as it is for the architecture
    :param data: of the recipe
    :param machine: to train on
    :param variant: of the recipe, if it is one
    :param seed: of the training; None for the recipe's
    :param minutes: budget of training instead of the recipe's
    :param max_tokens: that one process takes at a time, instead of the recipe's; tokens of an update stay
    :param extra: words for fairseq-train, which override everything else
    """

    recipe: Recipe
    data: Data
    machine: Machine
    variant: str | None = None
    seed: int | None = None
    minutes: float | None = None
    max_tokens: int | None = None
    extra: tuple[str, ...] = ()

    @cached_property
    def run(self) -> Path:
        """Folder of the training; its name tells it from trainings with other flags."""
        return self.data.folder / self._name({"variant": self.variant, "seed": self.seed})

    @property
    def table(self) -> Path:
        """The scores of all seeds."""
        return self.data.folder / f"{self._name({'variant': self.variant})}.md"

    def _name(self, parts: dict[str, Any]) -> str:
        return training.run_name(self.recipe.arch, [*commands.flags(parts), *self.extra])

    @property
    def checkpoints(self) -> Path:
        return self.run / "checkpoints"

    @property
    def model(self) -> Path:
        return self.run / "model" / "model.pt"

    # -- train ---------------------------------------------------------------------------------------------------

    @cached_property
    def batch(self) -> Batch:
        """Tokens of an update as the recipe has them, whatever the machine."""
        return machine.divide(self.recipe.tokens_per_update, self._most_tokens, self.machine.processes)

    @property
    def _most_tokens(self) -> int:
        """That one process takes at a time."""
        return self.max_tokens or int(self.recipe.train["max-tokens"])

    @property
    def described_batch(self) -> str:
        own = {"--max-tokens", "--update-freq", "--batch-size"} & {word.partition("=")[0] for word in self.extra}
        return f"batches as {', '.join(sorted(own))} after -- makes them" if own else str(self.batch)

    def train_options(self) -> dict[str, Any]:
        """Flags of fairseq-train."""
        recipe, minutes = self.recipe, self.minutes or self.recipe.minutes
        return {
            "user-dir": PACKAGE,
            "task": recipe.task,
            **self.data.language_flags(),
            "arch": recipe.arch,
            "log-format": "json",
            "log-interval": 100,
            **training.STEADY,
            **recipe.average.train_flags(),
            **recipe.train,
            "max-tokens-valid": max(self._most_tokens, training.LONGEST),
            **self.batch.flags(),
            **self.machine.flags(),
            "seed": recipe.train.get("seed", 1) if self.seed is None else self.seed,
            "stop-time-hours": None if minutes is None else round(minutes / 60, 4),
            "save-dir": self.checkpoints,
            "tensorboard-logdir": self.run / "tensorboard",
        }

    def train_command(self) -> list[str | Path]:
        """The command that trains, as a user would type it."""
        words = commands.flags(self.train_options())
        return [*self.machine.launcher(), "fairseq-train", self.data.binary, *words, *self.extra]

    def identity(self, data: Jobs) -> str:
        """Digest of what makes it the same training: data and flags, but for those of machine, time and place.

        :param data: the steps that made them
        """
        flags = self.train_options()
        passing = {"user-dir", "stop-time-hours", "save-dir", "tensorboard-logdir", "max-tokens-valid"}
        passing |= {"no-epoch-checkpoints", "keep-last-epochs", "save-interval-updates", "keep-interval-updates"}
        for name in passing | set(self.batch.flags()) | set(self.machine.flags()):
            flags.pop(name, None)
        return data.digest_of([self.recipe.tokens_per_update, commands.flags(flags), self.extra])

    def train(self, progress: Callable[[str], None] | None = None) -> None:
        """Trains, or goes on with a training that was stopped.

        :param progress: told every line that fairseq-train prints
        :raises UserError: the data are not those of the recipe; checkpoints are there of another training
        """
        data, command = self.data.prepared(), self.train_command()
        print(f"{self.described_batch}; {self.machine}", flush=True)
        self.run.mkdir(parents=True, exist_ok=True)
        if self.machine.rank > 0:  # the first machine writes checkpoints and records
            commands.run(command, self.run / f"train.node{self.machine.rank}.log", progress)
            return
        same = self.identity(data)
        if training.has_begun(self.checkpoints):
            training.require_same(self.run, same)  # before what is recorded of them is given up

        def work() -> None:
            training.train(command, self.run, self.checkpoints, same, progress, self._updates(command))
            told = provenance(list(map(str, command)), self.machine.gpus > 0 and machine.on_gpu())
            write_text(self.made_with, json.dumps(told, indent=1) + "\n")

        with lock_directory(self.run, "training"):
            Jobs(self.run, data.digest).run("train", self._training(data), self.checkpoints, work)

    def _training(self, data: Jobs) -> Any:
        """What the step of training is asked to do."""
        return [self.identity(data), self.train_options()["stop-time-hours"]]

    @staticmethod
    def _updates(command: list[str | Path]) -> int | None:
        """Where the training ends, if it ends by updates."""
        places = [place for place, word in enumerate(command) if word == "--max-update"]
        return int(command[places[-1] + 1]) if places else None

    # -- evaluate ------------------------------------------------------------------------------------------------

    def average_command(self, until: int | None = None) -> list[str | Path]:
        """The command that makes the model that decodes.

        :param until: leave out checkpoints after this epoch, or update
        """
        average = self.recipe.average
        if average.best:
            inputs: list[str | Path] = [self.checkpoints / "checkpoint_best.pt"]
        elif count := self.averaged(until):
            chosen = {"last": count, "by": average.by, "until": until}
            inputs = [self.checkpoints, *commands.flags(chosen)]
        else:
            inputs = [self.checkpoints / "checkpoint_last.pt"]
        return ["ode-transformer", "average", *inputs, "--output", self.model]

    def averaged(self, until: int | None = None) -> int:
        """How many checkpoints are averaged: the recipe's number, or fewer if fewer are there.

        :raises UserError: there is none
        """
        average = self.recipe.average
        if not self.checkpoints.is_dir():
            return average.last
        there = [number for number in numbered_checkpoints(self.checkpoints, average.by) if number <= (until or number)]
        if not there and (until or not (self.checkpoints / "checkpoint_last.pt").exists()):
            raise UserError(f"{self.checkpoints}: no checkpoint of an {average.by}; train first, or for longer")
        if not there:
            print(f"{self.checkpoints}: none of an {average.by} yet: the last checkpoint stands alone")
        elif len(there) < average.last:
            print(f"{self.checkpoints}: {len(there)} of the {average.last} {average.by} checkpoints to be averaged")
        return min(len(there), average.last)

    def decode_command(self, split: str) -> list[str | Path]:
        """The command that translates a test set, or measures a language model on it."""
        options = {
            "user-dir": PACKAGE,
            "task": self.recipe.task,
            **self.data.language_flags(),
            "path": self.model,
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

    def log_of(self, split: str) -> Path:
        return self.run / f"generate.{split}.log"

    def score_command(self, scoring: Scoring, split: str) -> list[str | Path]:
        """The command that scores what was decoded."""
        log = {"generate-log" if self.data.parallel else "eval-lm-log": self.log_of(split)}
        words = commands.flags({"metric": scoring.metric, **log, **scoring.options})
        corpus, target = self.data.corpus, self.data.languages[-1]
        if scoring.against == "m2":
            return ["ode-transformer", "score", *words, "--gold", corpus / f"{split}.m2", "--json"]
        if split == "valid" and self.data.parallel:
            return ["ode-transformer", "score", *words, "--json"]  # of some pairs only; the log has their references
        first = corpus / (f"{split}.{target}" if scoring.against == "tokens" else f"raw.{split}.{target}")
        further = range(1, self.recipe.corpus.further_references(self.recipe.sets[split]) + 1)
        more = [corpus / f"{scoring.against}{number}.{split}.{target}" for number in further]
        return ["ode-transformer", "score", *words, "--references", first, *more, "--json"]

    def evaluation_commands(self) -> list[list[str | Path]]:
        """What evaluation runs."""
        decode = [self.decode_command(split) for split in self.recipe.sets]
        score = [self.score_command(scoring, split) for split in self.recipe.sets for scoring in self.recipe.score]
        return [self.average_command(), *decode, *score]

    def evaluate(self, until: int | None = None) -> dict[str, Score]:
        """Averages, decodes and scores; what is done already is left out. Returns the scores by name.

        :param until: see ``average_command``
        :raises UserError: there are no checkpoints, or they are of other data or flags
        """
        if not self.checkpoints.is_dir():
            raise UserError(f"{self.checkpoints}: not there; scripts/train.sh makes it, with the same --arch and flags")
        data = self.data.prepared()
        training.require_same(self.run, self.identity(data))
        self.model.parent.mkdir(parents=True, exist_ok=True)
        for file in self.data.model_files:
            shutil.copy(file, self.model.parent)
        for split, name in self.recipe.sets.items():
            if split not in self.data.splits():
                print(f"{name}: left out, the data have no {split} split")
        jobs = Jobs(self.run, data.digest)
        for job in self._evaluation(until):
            jobs.run(*job)
        scores = self._scored()
        for score in scores.values():
            print(score)
        return scores

    def evaluated(self) -> dict[str, Score] | None:
        """The scores, by name, if the training has ended and all of its evaluation is done; None otherwise.

        :raises UserError: the data are not there, or for another recipe
        """
        data = self.data.prepared()
        if not Jobs(self.run, data.digest).is_done("train", self._training(data), self.checkpoints):
            if self.checkpoints.exists():
                print(f"{self.run}: left out, the training has not ended, or not with these data and flags")
            return None
        jobs = Jobs(self.run, data.digest)
        for name, request, result, _ in self._evaluation():
            if not jobs.is_done(name, request, result):
                print(f"{self.run}: left out, trained but not evaluated as it is now ({name})")
                return None
            jobs.skip(name, request)
        return self._scored()

    def _evaluation(self, until: int | None = None) -> Iterator[tuple[str, Any, Path, Callable[[], None]]]:
        """The steps of evaluation: name, what it is asked to do, what it leaves, and what does it."""
        average = self.average_command(until)
        there = [[path.name, path.stat().st_mtime_ns] for path in sorted(self.checkpoints.iterdir())]
        request = [self._anywhere(average), there]
        yield "average", request, self.model, lambda: commands.run(average, self.run / "average.log")
        splits = [split for split in self.recipe.sets if split in self.data.splits()]
        for split in splits:
            decode, log = self.decode_command(split), self.log_of(split)
            yield f"decode {split}", self._anywhere(decode), log, partial(commands.run, decode, log)
        asked = {
            split: [self._anywhere(self.score_command(scoring, split)) for scoring in self.recipe.score]
            for split in splits
        }
        request = [__version__, asked, self.recipe.sets]
        yield "score", request, self.scores, lambda: self._write_scores(splits)

    def _anywhere(self, command: Sequence[str | Path]) -> list[str]:
        """A command without what only says on which machine and in which folder it runs."""
        words = [str(word).replace(str(self.data.folder), "") for word in command]
        return [word for word in words if word not in ("--cpu", "--fp16", "--bf16", str(PACKAGE))]

    @property
    def made_with(self) -> Path:
        """Where it is told with what the training ended, see ``provenance``."""
        return self.run / "trained.json"

    @property
    def scores(self) -> Path:
        return self.run / "scores.json"

    def _scored(self) -> dict[str, Score]:
        return {title: Score(**entry) for title, entry in json.loads(self.scores.read_text()).items()}

    def _write_scores(self, splits: Sequence[str]) -> None:
        found = {title: asdict(score) for split in splits for title, score in self.score(split).items()}
        write_text(self.scores, json.dumps(found, indent=1) + "\n")

    def score(self, split: str) -> dict[str, Score]:
        """The recipe's scores of a decoded set, by name.

        :raises UserError: the recipe has not a name for each score of a measure
        """
        scores = {}
        for scoring in self.recipe.score:
            lines: list[str] = []
            commands.run(self.score_command(scoring, split), self.run / "score.log", lines.append)
            found = [Score(**json.loads(line)) for line in lines if line.startswith("{")]
            if len(found) != len(scoring.names):
                given = ", ".join(score.metric for score in found)
                raise UserError(f"the recipe's names {', '.join(scoring.names)}: {scoring.metric} gives {given}")
            for name, score in zip(scoring.names, found, strict=True):
                title = self.recipe.score_title(name, split)
                scores[title] = replace(score, metric=title)
        return scores
