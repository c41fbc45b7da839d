"""The command line of ``scripts/study.sh``: trains and evaluates what a study lacks, and writes what it found."""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ode_transformer.analysis.curves.training_log import read_log
from ode_transformer.metrics.metric import Score
from ode_transformer.recipes import fairseq_flags, runner
from ode_transformer.recipes.experiment import Experiment
from ode_transformer.recipes.machine import Machine
from ode_transformer.recipes.preparation import Data
from ode_transformer.recipes.recipe import Expected, Recipe, find, read_recipe
from ode_transformer.studies import study
from ode_transformer.studies.study import Cell, Place, Study
from ode_transformer.studies.study_results import Published, Results, Run
from ode_transformer.support import commands, console
from ode_transformer.support.errors import UserError
from ode_transformer.support.provenance import provenance


def parser_of() -> argparse.ArgumentParser:
    """Options of ``scripts/study.sh``."""
    parser = argparse.ArgumentParser(
        prog="study",
        description="Trains and evaluates what a study lacks.",
        epilog="Studies: " + ", ".join(study.names()),
    )
    parser.add_argument("study", metavar="STUDY", help="of configs/studies/, or the path of a .yaml file")
    parser.add_argument(
        "--at", metavar="PLACE", help="one of the places of the study (default: the first, the paper's)"
    )
    parser.add_argument("--seeds", type=runner.seeds, metavar="S,S,...", help="some of the seeds of the study")
    parser.add_argument("--systems", metavar="PATTERN,...", help="only those whose names match, such as 'RK2*'")
    parser.add_argument("--table", action="store_true", help="train nothing: write what the runs that are there found")
    runner.add_common(parser)
    runner.add_preparation(parser)
    runner.add_machine(parser)
    runner.add_batch(parser)
    return parser


@dataclass(frozen=True)
class Trials:
    """The runs of a study at one of its places.

    :param recipe: of the place, as its file has it
    """

    args: argparse.Namespace
    study: Study
    name: str
    recipe: Recipe

    @property
    def place(self) -> Place:
        return self.study.places[self.name]

    @cached_property
    def data(self) -> Data:
        return Data(self.recipe, self.args.output / Path(self.place.recipe).stem)

    def recipe_of(self, cell: Cell) -> Recipe:
        """
        :raises UserError: the system's architecture does not exist, or is not for the task
        """
        arch = cell.arch(self.place)
        runner.check_arch(arch, self.recipe.task, f"{cell}: arch {arch}")
        return self.recipe.for_arch(arch, self.place.variant)

    def extra(self, cell: Cell) -> list[str]:
        """The system's words for fairseq-train.

        :raises UserError: fairseq refuses its flags
        """
        own = tuple(commands.flags(cell.system.flags))
        plain = Experiment(self.recipe_of(cell), self.data, Machine(0), self.place.variant, extra=own)
        try:
            known = vars(fairseq_flags.parse("fairseq-train", runner.words_of(plain)))
        except UserError as error:
            raise UserError(f"{cell}: {error}") from error
        axis = self.study.axis
        deeper = self.study.deepens or study.DEEPENS[self.recipe.task]
        asked = {*deeper, *(axis.flags if axis else ()), *self.place.flags, *self.place.sizes}
        usual = {flag: known.get(flag.replace("-", "_")) for flag in asked}
        return commands.flags(cell.flags(self.place, axis, deeper, usual))

    def experiments(self, cell: Cell, seeds: Sequence[int]) -> list[Experiment]:
        """Of a system, one for each seed."""
        asked = argparse.Namespace(**{**vars(self.args), "variant": self.place.variant, "seeds": seeds})
        return runner.experiments(asked, self.recipe_of(cell), self.data, self.extra(cell))

    def size(self, experiment: Experiment) -> tuple[int, int]:
        """Parameters and operations of the experiment's model."""
        from fairseq.data import Dictionary

        from ode_transformer.models.model_from_options import build_from_options
        from ode_transformer.models.operation_count import count_forward_operations

        args = fairseq_flags.parse("fairseq-train", runner.words_of(experiment))
        files = [self.data.binary / f"dict.{language}.txt" for language in self.data.languages]
        if not self.data.parallel:
            files = [self.data.binary / "dict.txt"]
        model = build_from_options(args, *(len(Dictionary.load(str(file))) for file in files))
        return sum(parameter.numel() for parameter in model.parameters()), count_forward_operations(model)

    def results(self) -> Results:
        """Of all runs of the study that have ended, whoever made them; nothing is run.

        :raises UserError: the data are not there
        """
        seeds = dict.fromkeys([*self.study.seeds, *(self.args.seeds or ())])
        runs = []
        for cell in self.study.cells(self.name):
            size = None
            for experiment in self.experiments(cell, list(seeds)):
                if (scores := experiment.evaluated()) is not None:
                    size = size or self.size(experiment)
                    runs.append(self.run(cell, experiment, scores, *size))
        return Results(self.study, self.name, runs, self.published())

    def run(
        self, cell: Cell, experiment: Experiment, scores: Mapping[str, Score], parameters: int, operations: int
    ) -> Run:
        """What one experiment found."""
        found = {title: score.value for title, score in scores.items()}
        points = read_log(experiment.run / "train.log")
        valid = [point.nll_loss for point in points if point.split == "valid" and point.nll_loss is not None]
        if self.data.parallel and valid:
            found["perplexity valid"] = 2 ** valid[-1]
        minutes, updates = max(p.minutes or 0.0 for p in points), max(p.updates for p in points)
        told = experiment.made_with
        made_with = json.loads(told.read_text()) if told.exists() else {}
        assert experiment.seed is not None
        return Run(cell, experiment.seed, parameters, operations, updates, minutes, found, made_with)

    def published(self) -> dict[tuple[str, int], Published]:
        """The papers' scores of each system: for this place, or else for the first."""
        first = self.study.first
        there = self if self.name == first else Trials(self.args, self.study, first, recipe_at(self.study, first))
        return self.published_here() or there.published_here()

    def published_here(self) -> dict[tuple[str, int], Published]:
        """The expected scores of the place's recipe, those of the study's tables first."""

        def rank(entry: Expected) -> int:
            named = [n for n, table in enumerate(self.study.tables) if entry.table == table]
            return named[0] if named else len(self.study.tables)

        found = {}
        for cell in self.study.cells(self.name):
            recipe, extra = self.recipe_of(cell), self.extra(cell)
            # Where a variant is for others, so that they train as this architecture does anyway, its rows name none.
            entries = runner.published(recipe, self.place.variant, extra) or runner.published(recipe, None, extra)
            if entries:
                entry = min(entries, key=rank)
                found[cell.key] = Published(self.place.recipe, entry.scores, cell.value)
        return found


def recipe_at(chosen: Study, place: str) -> Recipe:
    """The recipe of a place.

    :raises UserError: something in it is wrong
    """
    recipe, document = read_recipe(find(chosen.places[place].recipe))
    runner.check_flags(recipe, document)
    return recipe


def run_all(trials: Trials) -> list[str]:
    """Trains and evaluates, a seed of all systems after the other; one that fails does not stop the others.

    :returns: what failed, and why
    :raises UserError: something is wrong with what is asked for
    """
    args = trials.args
    patterns = args.systems.split(",") if args.systems else ["*"]
    made = [
        (cell, trials.experiments(cell, args.seeds or trials.study.seeds))
        for cell in trials.study.cells(trials.name)
        if any(fnmatch.fnmatchcase(cell.system.name, pattern) for pattern in patterns)
    ]
    if not made:
        known = ", ".join(system.name for system in trials.study.systems)
        raise UserError(f"--systems {args.systems}: no name of a system matches; there are {known}")
    runner.prepare(args, trials.data)
    failed = []
    for number in range(len(made[0][1])):
        for cell, experiments in made:
            experiment = experiments[number]
            print(f"\n=== {cell}, seed {experiment.seed}", flush=True)
            try:
                runner.train(args, experiment)
                runner.evaluate(args, experiment)
            except UserError as error:
                failed.append(f"{cell}, seed {experiment.seed}: {error}")
                print(failed[-1], file=sys.stderr, flush=True)
    return failed


def work(argv: Sequence[str] | None) -> None:
    """Carries out a command line.

    :raises UserError: something is wrong with it, or a run failed
    """
    words = list(sys.argv[1:] if argv is None else argv)
    args = parser_of().parse_args(words)
    chosen = study.read_study(study.find(args.study))
    place = args.at or chosen.first
    if place not in chosen.places:
        raise UserError(f"--at {place}: the places of {args.study} are {', '.join(chosen.places)}")
    trials = Trials(args, chosen, place, recipe_at(chosen, place))
    failed = [] if args.table else run_all(trials)
    if not args.dry_run:
        folder = args.output / "studies" / f"{Path(args.study).stem}-{place}"
        ran = provenance(["bash", "scripts/study.sh", *words], on_gpu=False)
        print(f"\n{trials.results().write(folder, ran)}\n{folder}")
    if failed:
        raise UserError(f"{len(failed)} runs failed; the first: {failed[0]}")


def main(argv: Sequence[str] | None = None) -> int:
    """Command line. Returns the exit status."""
    return console.exit_status("study", lambda: work(argv))


if __name__ == "__main__":
    sys.exit(main())
