"""The way of a study: train and evaluate the missing runs, collect all scores, write the results."""

from __future__ import annotations

import fnmatch
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import inf, isfinite
from pathlib import Path
from typing import Any

from ode_transformer import __version__
from ode_transformer.analysis.curves.training_log import read_log
from ode_transformer.metrics.metric import Score
from ode_transformer.models import fairseq_parser
from ode_transformer.recipes import workflow
from ode_transformer.recipes.architectures import check_architecture
from ode_transformer.recipes.experiment import Experiment
from ode_transformer.recipes.flag_checks import fairseq_problems
from ode_transformer.recipes.machine import Machine
from ode_transformer.recipes.options import RunOptions
from ode_transformer.recipes.preparation import RecipeData
from ode_transformer.recipes.published import published_results
from ode_transformer.recipes.recipe import PublishedResult, Recipe, read_recipe
from ode_transformer.recipes.recipe_files import find_recipe
from ode_transformer.recipes.report_page import write_report
from ode_transformer.studies import equal_footing, paired_test
from ode_transformer.studies.analyses import analysis_commands
from ode_transformer.studies.equal_footing import draw_validations, equal_footing_rows, validation_csv
from ode_transformer.studies.results import STUDY_FILE, PublishedScores, StudyResults, StudyRun, StudyTable
from ode_transformer.studies.study import DEPTH_FLAGS, Cell, Place, Study, read_study
from ode_transformer.studies.study_files import find_study
from ode_transformer.support import commands
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import content_digest, write_text
from ode_transformer.support.jobs import Jobs
from ode_transformer.support.provenance import provenance

MAX_BITS = 100.0  # a loss of more has no perplexity that a table could show


@dataclass(frozen=True)
class StudyRuns:
    """The runs of a study at one of its places.

    :param place_name: of the place
    :param options: of the user; variant, seeds and flags come from the study
    """

    study: Study
    place_name: str
    options: RunOptions

    @property
    def place(self) -> Place:
        """The data set of the runs."""
        return self.study.places[self.place_name]

    @cached_property
    def recipe(self) -> Recipe:
        """The recipe of the place.

        :raises UserError: something in the recipe is wrong
        """
        return read_recipe(find_recipe(self.place.recipe), fairseq_problems)

    @cached_property
    def data(self) -> RecipeData:
        """The data of the place, prepared as for the baseline."""
        return workflow.recipe_data(self._baseline_recipe, self.place.recipe, self.options)

    @cached_property
    def _baseline_recipe(self) -> Recipe:
        return self._recipe_for(self.cells[0])

    @property
    def cells(self) -> list[Cell]:
        """The systems at every value of the axis."""
        return list(self.study.cells(self.place_name))

    def cell_recipe(self, cell: Cell) -> Recipe:
        """Return the recipe with the overrides of a system's architecture applied, and the data of the baseline.

        :raises UserError: the system's architecture does not exist, or is not for the task
        """
        return self._recipe_for(cell).with_data_of(self._baseline_recipe)

    def _recipe_for(self, cell: Cell) -> Recipe:
        arch = cell.arch(self.place)
        check_architecture(arch, self.recipe.task, f"{cell}: arch {arch}")
        return self.recipe.for_arch(arch, self.place.variant)

    def train_flags(self, cell: Cell, tuned_flags: Mapping[str, Any] | None = None) -> tuple[str, ...]:
        """Return the words for fairseq-train of a system.

        :param tuned_flags: a value of the place's grid; by default the chosen one
        :raises UserError: fairseq rejects its flags
        """
        system_flags = tuple(commands.flags(cell.system.flags))
        experiment = Experiment(
            self.cell_recipe(cell), self.data, Machine(0), self.place.variant, train_flags=system_flags
        )
        try:
            settings = vars(fairseq_parser.parse("fairseq-train", experiment.train_words()))
        except UserError as error:
            raise UserError(f"{cell}: {error}") from error
        axis = self.study.axis
        depth_flags = self.study.deepens or DEPTH_FLAGS[self.recipe.task]
        tuned_flags = self.chosen_flags(cell) if tuned_flags is None else tuned_flags
        names = {*depth_flags, *(axis.flags if axis else ()), *self.place.flags, *self.place.sizes, *tuned_flags}
        defaults = {name: _single(settings.get(name.replace("-", "_"))) for name in names}
        return tuple(commands.flags(cell.flags(self.place, axis, depth_flags, defaults, tuned_flags)))

    def trials(self, cell: Cell) -> dict[float, Experiment]:
        """Return the trainings of the place's grid for a system, by their values; empty without a grid."""
        if (tuning := self.place.tuning) is None:
            return {}
        options = replace(self.options, variant=self.place.variant, seeds=(tuning.seed,))
        recipe = self.cell_recipe(cell)
        return {
            value: workflow.plan_experiments(
                recipe, self.data, replace(options, train_flags=self.train_flags(cell, {tuning.flag: value}))
            )[0]
            for value in tuning.values
        }

    def trial_losses(self, cell: Cell) -> dict[float, float]:
        """Return the lowest validation loss of each complete trial."""
        return {value: lowest_loss(trial) for value, trial in self.trials(cell).items() if trial.is_trained()}

    @cached_property
    def _chosen(self) -> dict[tuple[str, int], dict[str, float]]:
        """The chosen values by cell."""
        return {}

    def chosen_flags(self, cell: Cell) -> dict[str, float]:
        """Return the value of the place's grid with the lowest validation loss; empty until all trials are complete."""
        tuning = self.place.tuning
        if tuning is not None and cell.key not in self._chosen and self.data.is_prepared():
            losses = self.trial_losses(cell)
            if len(losses) == len(tuning.values):
                self._chosen[cell.key] = {tuning.flag: min(losses, key=lambda value: losses[value])}
        return self._chosen.get(cell.key, {})

    def is_tuned(self, cell: Cell) -> bool:
        """Return whether the place has no grid, or the system's value is chosen."""
        return self.place.tuning is None or bool(self.chosen_flags(cell))

    def experiments(self, cell: Cell, seeds: Sequence[int]) -> list[Experiment]:
        """Return one experiment of a system for each seed."""
        options = replace(
            self.options, variant=self.place.variant, seeds=tuple(seeds), train_flags=self.train_flags(cell)
        )
        return workflow.plan_experiments(self.cell_recipe(cell), self.data, options)

    def model_size(self, experiment: Experiment) -> tuple[int, int]:
        """Return the numbers of parameters and operations of an experiment's model."""
        from fairseq.data import Dictionary

        from ode_transformer.models.model_from_options import build_from_options
        from ode_transformer.models.operation_count import count_forward_operations

        args = fairseq_parser.parse("fairseq-train", experiment.train_words())
        names = [f"dict.{language}.txt" for language in self.data.languages] if self.data.parallel else ["dict.txt"]
        model = build_from_options(args, *(len(Dictionary.load(str(self.data.binary / name))) for name in names))
        return sum(parameter.numel() for parameter in model.parameters()), count_forward_operations(model)

    def results(self) -> StudyResults:
        """Collect the results of all complete runs of the study, whatever command trained them; nothing is run.

        :raises UserError: the data are not prepared
        """
        sizes: dict[tuple[str, int], tuple[int, int]] = {}
        runs = []
        for cell, experiment, scores in self.complete_runs:
            if cell.key not in sizes:
                sizes[cell.key] = self.model_size(experiment)
            runs.append(self.run_results(cell, experiment, scores, *sizes[cell.key]))
        return StudyResults(self.study, self.place_name, runs, self.published_scores())

    @cached_property
    def complete_runs(self) -> list[tuple[Cell, Experiment, dict[str, Score]]]:
        """The trained and evaluated runs, whatever command trained them, when this is first read."""
        seeds = list(dict.fromkeys([*self.study.seeds, *(seed for seed in self.options.seeds if seed is not None)]))
        return [
            (cell, experiment, scores)
            for cell in self.cells
            if self.is_tuned(cell)
            for experiment in self.experiments(cell, seeds)
            if (scores := experiment.existing_scores()) is not None
        ]

    def run_results(
        self, cell: Cell, experiment: Experiment, scores: Mapping[str, Score], parameters: int, operations: int
    ) -> StudyRun:
        """Return the results of one complete run."""
        values = {title: score.value for title, score in scores.items()}
        points = read_log(experiment.folder / "train.log")
        losses = [point.nll_loss for point in points if point.split == "valid" and point.nll_loss is not None]
        if self.data.parallel and losses:
            values["perplexity valid"] = 2 ** losses[-1]
        validations = [
            (point.updates, 2**point.nll_loss)
            for point in points
            if point.split == "valid" and point.nll_loss is not None and point.nll_loss < MAX_BITS
        ]
        minutes, updates = max(p.minutes or 0.0 for p in points), max(p.updates for p in points)
        path = experiment.provenance_path
        origin = json.loads(path.read_text()) if path.exists() else {}
        assert experiment.seed is not None
        return StudyRun(
            *(cell, experiment.seed, parameters, operations, updates, minutes, values, origin, experiment.folder),
            validations=validations,
        )

    def published_scores(self) -> dict[tuple[str, int], PublishedScores]:
        """Return the published scores of each cell, by its key: for this place, or else for the study's first."""
        scores = dict(self._published_here())
        if scores or self.place_name == self.study.first_place:
            return scores
        return dict(replace(self, place_name=self.study.first_place)._published_here())

    def _published_here(self) -> Iterator[tuple[tuple[str, int], PublishedScores]]:
        """Yield the key and the published scores of each cell that the recipe of the place has results for."""
        preferred = {table: rank for rank, table in enumerate(self.study.tables)}

        def rank(result: PublishedResult) -> int:
            return preferred.get(result.table, len(preferred))

        for cell in self.cells:
            recipe, train_flags = self.cell_recipe(cell), self.train_flags(cell)
            results = published_results(recipe, self.place.variant, train_flags)
            # Architectures that a variant does not change have their results without it.
            results = results or published_results(recipe, None, train_flags)
            if results:
                result = min(results, key=rank)
                yield cell.key, PublishedScores(self.place.recipe, result.scores, cell.value)


def lowest_loss(experiment: Experiment) -> float:
    """Return the lowest validation loss of a training, without label smoothing; infinite if it diverged."""
    points = [point for point in read_log(experiment.folder / "train.log") if point.split == "valid"]
    losses = [point.loss if point.nll_loss is None else point.nll_loss for point in points]
    return min((loss for loss in losses if isfinite(loss)), default=inf)


def _single(value: Any) -> Any:
    """Return the only element of a list, as which fairseq parses ``--lr``; anything else as it is."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def selected_cells(runs: StudyRuns, patterns: Sequence[str]) -> list[Cell]:
    """Return the systems whose names match, at every value of the axis.

    :raises UserError: none matches
    """
    cells = [cell for cell in runs.cells if any(fnmatch.fnmatchcase(cell.system.name, pattern) for pattern in patterns)]
    if not cells:
        names = ", ".join(system.name for system in runs.study.systems)
        raise UserError(f"--systems {','.join(patterns)}: no name of a system matches; there are {names}")
    return cells


def planned_runs(runs: StudyRuns, cells: Sequence[Cell]) -> list[tuple[Cell, Experiment]]:
    """Return the runs that the user asks for: for each seed all systems.

    :raises UserError: an option is wrong
    """
    seeds = [seed for seed in runs.options.seeds if seed is not None] or runs.study.seeds
    experiments = [(cell, runs.experiments(cell, seeds)) for cell in cells]
    return [(cell, of_cell[number]) for number in range(len(seeds)) for cell, of_cell in experiments]


def tune(runs: StudyRuns, cells: Sequence[Cell]) -> list[str]:
    """Train each system with every value of the place's grid; return a line for each failure."""
    if (tuning := runs.place.tuning) is None:
        return []
    workflow.prepare(runs.data, runs.options)
    failures = []
    for cell in cells:
        for value, trial in runs.trials(cell).items():
            print(f"\n=== {cell}, {tuning.flag} {value}, seed {tuning.seed}", flush=True)
            try:
                workflow.train(trial, runs.options)
            except UserError as error:
                failures.append(f"{cell}, {tuning.flag} {value}: {error}")
                print(failures[-1], file=sys.stderr, flush=True)
        if not runs.options.dry_run and (chosen := runs.chosen_flags(cell)):
            print(f"{cell}: {tuning.flag} {chosen[tuning.flag]}", flush=True)
    if runs.options.dry_run:
        print(f"\nThe following runs take the {tuning.flag} of each system with the lowest validation loss.")
    return failures


def train_and_evaluate(runs: StudyRuns, experiments: Sequence[tuple[Cell, Experiment]]) -> list[str]:
    """Train and evaluate the missing runs; a failure does not stop the others.

    :return: a line for each failure
    """
    options = runs.options
    workflow.prepare(runs.data, options)
    failures = []
    for cell, experiment in experiments:
        print(f"\n=== {cell}, seed {experiment.seed}", flush=True)
        try:
            workflow.train(experiment, options)
            workflow.evaluate(experiment, options)
        except UserError as error:
            failures.append(f"{cell}, seed {experiment.seed}: {error}")
            print(failures[-1], file=sys.stderr, flush=True)
    return failures


def analyse(study: Study, experiments: Sequence[tuple[Cell, Experiment]], folder: Path, dry_run: bool) -> list[str]:
    """Run the analyses of a study that are not current, or print their commands; return a line for each failure.

    :param experiments: the analysed runs
    """
    failures = []
    runs = [(str(cell), experiment) for cell, experiment in experiments]
    for name, command in analysis_commands(study.analyses, runs, folder) if runs else ():
        if dry_run:
            commands.print_command(command)
            continue
        log = folder / f"{name}.log"
        result = next((Path(word) for word in command if str(word).startswith(str(folder / name))), log)
        request = [__version__, command, content_digest([experiment.scores_path for _, experiment in experiments])]
        try:
            Jobs(folder, report=lambda line: None).run(name, request, result, partial(commands.run, command, log))
        except UserError as error:
            failures.append(f"{name}: {error}")
            print(failures[-1], file=sys.stderr, flush=True)
    return failures


def further_tables(runs: StudyRuns, results: StudyResults) -> Iterator[StudyTable]:
    """Yield the tables of the grid, of equal footing, and of the test over sentences and seeds, where there are any."""
    if (tuning := runs.place.tuning) is not None:
        rows = [["system", *map(str, tuning.values), "chosen"]]
        for cell in runs.cells:
            losses, chosen = runs.trial_losses(cell), runs.chosen_flags(cell)
            values = [
                f"{2 ** losses[value]:.2f}" if losses.get(value, inf) < MAX_BITS else "" for value in tuning.values
            ]
            rows.append([str(cell), *values, str(chosen.get(tuning.flag, ""))])
        note = f"Lowest validation perplexity of seed {tuning.seed}; the other runs take the best value of each system."
        yield StudyTable(f"Choice of {tuning.flag}, before the comparison", rows, note)
    if rows := equal_footing_rows(results):
        yield StudyTable("Equal updates, equal compute, equal parameters", rows, equal_footing.NOTE)
    scoring = runs.recipe.score[0]
    is_tested = scoring.metric in ("per", "wer") or (scoring.metric, scoring.options) == ("bleu", {"tokenize": "none"})
    if runs.data.parallel and is_tested:
        table = paired_test.paired_table(results, scoring.metric, next(iter(runs.recipe.sets)))
        yield from [table] if table else []


def run_study(
    name: str,
    place_name: str | None,
    patterns: Sequence[str],
    options: RunOptions,
    table_only: bool,
    command: Sequence[str],
) -> None:
    """Run a study and write its results.

    :param name: of the study, or the path of its file
    :param place_name: one of its places; None for the first
    :param patterns: of the names of the systems to train
    :param table_only: train nothing
    :param command: recorded in the results
    :raises UserError: an option is wrong, or a run failed
    """
    study = read_study(find_study(name))
    place_name = place_name or study.first_place
    if place_name not in study.places:
        raise UserError(f"--at {place_name}: the places of {name} are {', '.join(study.places)}")
    runs = StudyRuns(study, place_name, options)
    failures, planned = [], []
    if not table_only:
        cells = selected_cells(runs, patterns)
        failures = tune(runs, cells)
        planned = planned_runs(runs, [cell for cell in cells if options.dry_run or runs.is_tuned(cell)])
        failures += train_and_evaluate(runs, planned)
    folder = options.output / "studies" / f"{Path(name).stem}-{place_name}"
    if not options.dry_run:
        results = runs.results()
        text = results.write(folder, provenance(command, on_gpu=False), list(further_tables(runs, results)))
        if any(run.validations for run in results.runs):
            write_text(folder / "validations.csv", validation_csv(results))
            draw_validations(results, folder / "validations.png")
        print(f"\n{text}\n{folder}")
        planned = [(cell, experiment) for cell, experiment, _ in runs.complete_runs]
    analysis_failures = analyse(study, planned, folder, options.dry_run)
    if not options.dry_run and results.runs:
        write_report(folder, [folder / STUDY_FILE])
    if failures:
        raise UserError(f"{len(failures)} runs failed; the first: {failures[0]}")
    if analysis_failures:
        raise UserError(f"{len(analysis_failures)} analyses failed; the first: {analysis_failures[0]}")
