"""The command line of ``scripts/study.sh``: trains and evaluates what a study lacks, and writes what it found."""

from __future__ import annotations

import argparse
import fnmatch
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ode_transformer import commands
from ode_transformer.analysis.curves import read_log
from ode_transformer.arguments import natural, positive_int
from ode_transformer.errors import UserError
from ode_transformer.provenance import provenance
from ode_transformer.recipes import fairseq_flags, machine, runner, study
from ode_transformer.recipes.experiment import Experiment
from ode_transformer.recipes.machine import Machine
from ode_transformer.recipes.preparation import Data
from ode_transformer.recipes.recipe import Recipe, find, read_recipe
from ode_transformer.recipes.study import Cell, Place, Study
from ode_transformer.recipes.study_results import Published, Results, Run


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
    folder = "folder for everything (default: %(default)s)"
    parser.add_argument("--output", type=Path, default=Path("experiments"), metavar="DIR", help=folder)
    parser.add_argument("--raw", type=Path, metavar="DIR", help="the raw files, instead of downloading them")
    cores = os.cpu_count() or 1
    parser.add_argument("--workers", type=positive_int, default=cores, metavar="N", help="processes (default: all)")
    parser.add_argument("--gpus", type=natural, metavar="N", help="of this machine (default: all); 0: the processor")
    parser.add_argument("--precision", choices=machine.PRECISIONS, help="default: fp16 where the GPU has cores for it")
    parser.add_argument("--max-tokens", type=positive_int, metavar="N", help="of one GPU at a time")
    parser.add_argument("--dry-run", action="store_true", help="print what would be run, and run nothing")
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
        usual = vars(fairseq_flags.parse("fairseq-train", runner.words_of(plain)))
        axis = self.study.axis
        along = axis.flags if axis else []
        deeper = [flag for flag in along if flag.endswith("-layers")] or [study.DEPTH[self.recipe.task]]
        asked = {flag: usual.get(flag.replace("-", "_")) for flag in {*deeper, *along, *self.place.flags}}
        return commands.flags(cell.flags(self.place, axis, deeper, asked))

    def experiments(self, cell: Cell) -> list[Experiment]:
        """Of a system, one for each seed."""
        seeds = self.args.seeds or self.study.seeds
        asked = argparse.Namespace(**{**vars(self.args), "variant": self.place.variant, "seeds": seeds})
        return runner.experiments(asked, self.recipe_of(cell), self.data, self.extra(cell))

    def size(self, experiment: Experiment) -> tuple[int, int]:
        """Parameters and operations of the experiment's model."""
        from fairseq.data import Dictionary

        from ode_transformer.models.bare import bare_model, operations

        args = fairseq_flags.parse("fairseq-train", runner.words_of(experiment))
        files = [self.data.binary / f"dict.{language}.txt" for language in self.data.languages]
        if not self.data.parallel:
            files = [self.data.binary / "dict.txt"]
        model = bare_model(args, *(len(Dictionary.load(str(file))) for file in files))
        return sum(parameter.numel() for parameter in model.parameters()), operations(model)

    def results(self) -> Results:
        """Of the runs that have ended; nothing is run."""
        runs = []
        for cell in self.study.cells(self.name):
            size = None
            for experiment in self.experiments(cell):
                if (scores := experiment.evaluated()) is not None and experiment.seed is not None:
                    size = size or self.size(experiment)
                    found = {title: score.value for title, score in scores.items()}
                    points = read_log(experiment.run / "train.log")
                    if self.data.parallel and (
                        valid := [p.nll_loss for p in points if p.split == "valid" and p.nll_loss]
                    ):
                        found["perplexity valid"] = 2 ** valid[-1]
                    minutes = max(point.minutes or 0.0 for point in points)
                    updates = max(point.updates for point in points)
                    runs.append(Run(cell, experiment.seed, *size, updates, minutes, found))
        return Results(self.study, self.name, runs, self.published())

    def published(self) -> dict[tuple[str, int], Published]:
        """The first score of the paper for each system, where the recipe of its place has one."""
        first = self.study.published_at
        paper = self if self.name == first else Trials(self.args, self.study, first, recipe_at(self.study, first))
        found = {}
        for cell in self.study.cells(first):
            entries = runner.published(paper.recipe_of(cell), paper.place.variant, paper.extra(cell))
            if entries:
                found[cell.key] = Published(*next(iter(entries[0].scores.items())), cell.value)
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
        (cell, trials.experiments(cell))
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
    place = args.at or chosen.published_at
    if place not in chosen.places:
        raise UserError(f"--at {place}: the places of {args.study} are {', '.join(chosen.places)}")
    trials = Trials(args, chosen, place, recipe_at(chosen, place))
    failed = [] if args.table else run_all(trials)
    if not args.dry_run:
        folder = args.output / "studies" / f"{Path(args.study).stem}-{place}"
        ran = provenance(["bash", "scripts/study.sh", *words], args.gpus != 0 and machine.on_gpu())
        print(f"\n{trials.results().write(folder, ran)}\n{folder}")
    if failed:
        raise UserError(f"{len(failed)} runs failed; the first: {failed[0]}")


def main(argv: Sequence[str] | None = None) -> int:
    """Command line. Returns the exit status."""
    return commands.status_of("study", lambda: work(argv))


if __name__ == "__main__":
    sys.exit(main())
