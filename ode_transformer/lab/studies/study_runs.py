"""The runs of a study at one of its settings: their flags, learning rates, trainings and results."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import inf, isfinite
from typing import Any

from ode_transformer.decoding.operations import count_forward_operations
from ode_transformer.lab.analysis.training_log import read_log
from ode_transformer.lab.metrics.metric import Score
from ode_transformer.lab.recipes import workflow
from ode_transformer.lab.recipes.experiment import Experiment
from ode_transformer.lab.recipes.machine import Machine
from ode_transformer.lab.recipes.options import RunOptions, find_recipe
from ode_transformer.lab.recipes.published import published_results
from ode_transformer.lab.recipes.recipe import Recipe, check_architecture, read_recipe
from ode_transformer.lab.recipes.run_experiment import PROVENANCE, existing_scores, is_trained
from ode_transformer.lab.studies.results import PublishedScores, StudyResults, StudyRun
from ode_transformer.lab.studies.study import DEPTH_FLAGS, Row, Study
from ode_transformer.models.model_from_options import build_outline
from ode_transformer.support import commands
from ode_transformer.support.files import read_json

MAX_BITS = 100.0  # a loss of more has no perplexity that a table could show


class StudyRuns:
    """The runs of a study at one of its settings.

    :param options: of the user; variant, seeds and flags come from the study
    """

    def __init__(self, study: Study, setting_name: str, options: RunOptions) -> None:
        self.study, self.setting_name, self.options = study, setting_name, options
        self.setting, self.rows = study.settings[setting_name], list(study.rows(setting_name))
        self.recipe = read_recipe(find_recipe(self.setting.recipe))
        # All systems are trained on the data that are prepared for the baseline.
        self.data = workflow.recipe_data(self._recipe_for(self.rows[0]), self.setting.recipe, options)
        self._chosen: dict[tuple[str, int], str] = {}
        self._own_settings: dict[str, dict[str, Any]] = {}

    def row_recipe(self, row: Row) -> Recipe:
        """Return the recipe with the overrides of a system's architecture applied, and the data of the baseline."""
        return self._recipe_for(row).with_data_of(self.data.recipe)

    def _recipe_for(self, row: Row) -> Recipe:
        arch = row.arch(self.setting)
        check_architecture(arch, self.recipe.task, f"{row}: arch {arch}")
        return self.recipe.for_arch(arch, self.setting.variant)

    def train_flags(self, row: Row, tuned_flags: Mapping[str, Any] | None = None) -> tuple[str, ...]:
        """Return the words for fairseq-train of a system, without those that say what its own flags and recipe say.

        :param tuned_flags: of a trial; by default the chosen ones
        """
        system, setting, axis = row.system, self.setting, self.study.axis
        if system.name not in self._own_settings:
            options = RunOptions(variant=setting.variant, train_flags=tuple(commands.flags(system.flags)))
            experiment = Experiment(self.row_recipe(row), self.data, Machine(0), options)
            self._own_settings[system.name] = vars(experiment.train_settings)

        def default(flag: str) -> Any:
            value = self._own_settings[system.name].get(flag.replace("-", "_"))
            # fairseq parses --lr as a list.
            return value[0] if isinstance(value, list) and len(value) == 1 else value

        flags = setting.flags | ({} if "{size}" in system.arch else setting.sizes)
        if axis and row.value is not None:
            flags |= dict.fromkeys(axis.flags, row.value)
        if system.depth > 1:
            deepened = self.study.deepens or DEPTH_FLAGS[self.recipe.task]
            flags |= {flag: system.depth * int(flags.get(flag, default(flag))) for flag in deepened}
        if tuned_flags is None and setting.tuning and (chosen := self.chosen_trial(row)):
            tuned_flags = setting.tuning.candidates[chosen]
        flags |= tuned_flags or {}
        changed = {name: value for name, value in flags.items() if name not in system.flags and value != default(name)}
        return tuple(commands.flags(system.flags | changed))

    def trials(self, row: Row) -> dict[str, Experiment]:
        """Return the trainings of the setting's grid for a system, by their names; empty without a grid."""
        if (tuning := self.setting.tuning) is None:
            return {}
        return {name: self.experiments(row, (tuning.seed,), flags)[0] for name, flags in tuning.candidates.items()}

    def trial_losses(self, row: Row) -> dict[str, float]:
        """Return the validation loss of each complete trial, without label smoothing; infinite if it diverged."""
        last = self.setting.tuning is not None and self.setting.tuning.loss == "last"
        losses = {}
        for name, trial in self.trials(row).items():
            if is_trained(trial):
                validated = [point.bits for point in read_log(trial.log) if point.split == "valid"]
                losses[name] = min(filter(isfinite, validated[-1:] if last else validated), default=inf)
        return losses

    def chosen_trial(self, row: Row) -> str | None:
        """Return the name of the trial with the lowest validation loss; None until all trials are complete."""
        tuning = self.setting.tuning
        if tuning is not None and row.key not in self._chosen and self.data.is_prepared():
            losses = self.trial_losses(row)
            if len(losses) == len(tuning.candidates):
                self._chosen[row.key] = min(losses, key=lambda name: losses[name])
        return self._chosen.get(row.key)

    def is_tuned(self, row: Row) -> bool:
        """Return whether the setting has no grid, or the system's trial is chosen."""
        return self.setting.tuning is None or self.chosen_trial(row) is not None

    def experiments(
        self, row: Row, seeds: Sequence[int], tuned_flags: Mapping[str, Any] | None = None
    ) -> list[Experiment]:
        """Return one experiment of a system for each seed; ``tuned_flags`` as in :meth:`train_flags`."""
        flags = self.train_flags(row, tuned_flags)
        options = replace(self.options, variant=self.setting.variant, seeds=tuple(seeds), train_flags=flags)
        return workflow.plan_experiments(self.row_recipe(row), self.data, options)

    def results(self) -> StudyResults:
        """Collect the results of all complete runs of the study, whatever command trained them; nothing is run."""
        sizes: dict[tuple[str, int], tuple[int, int]] = {}
        runs = []
        for row, experiment, scores in self.complete_runs:
            if row.key not in sizes:
                model = build_outline(experiment.train_settings, self.data.dictionary_sizes())
                parameters = sum(parameter.numel() for parameter in model.parameters())
                sizes[row.key] = parameters, count_forward_operations(model)
            runs.append(self.run_results(row, experiment, scores, *sizes[row.key]))
        return StudyResults(self.study, self.setting_name, runs, self.published_scores())

    @cached_property
    def complete_runs(self) -> list[tuple[Row, Experiment, dict[str, Score]]]:
        """The trained and evaluated runs, whatever command trained them, when this is first read."""
        seeds = list(dict.fromkeys([*self.study.seeds, *(seed for seed in self.options.seeds if seed is not None)]))
        tuned = [(row, self.experiments(row, seeds)) for row in self.rows if self.is_tuned(row)]
        scored = [(row, run, existing_scores(run)) for row, runs in tuned for run in runs]
        return [(row, run, scores) for row, run, scores in scored if scores is not None]

    def run_results(
        self, row: Row, experiment: Experiment, scores: Mapping[str, Score], parameters: int, operations: int
    ) -> StudyRun:
        values = {title: score.value for title, score in scores.items()}
        points = read_log(experiment.log)
        # A language model's loss is that of the text; label smoothing makes another of a translation's.
        validated = [p for p in points if p.split == "valid" and (p.nll_loss is not None or not self.data.parallel)]
        if self.data.parallel and validated:
            # An average of checkpoints has no validation of its own.
            best = min(validated, key=lambda point: point.loss)
            decoded = best if experiment.recipe.average.best else validated[-1]
            if decoded.perplexity < 2**MAX_BITS:
                values["perplexity valid"] = decoded.perplexity
        validations = [(point.updates, point.perplexity) for point in validated if point.perplexity < 2**MAX_BITS]
        minutes, updates = max(p.minutes or 0.0 for p in points), max(p.updates for p in points)
        path = experiment.folder / PROVENANCE
        origin = read_json(path) if path.exists() else {}
        assert experiment.seed is not None
        return StudyRun(
            *(row, experiment.seed, parameters, operations, updates, minutes, values, origin, experiment.folder),
            validations=validations,
            score_commands=experiment.sentence_score_commands(),
        )

    def published_scores(self) -> dict[tuple[str, int], PublishedScores]:
        """Return the published scores of each row, by its key: for this setting, or else for the study's first."""
        ranks = {table: rank for rank, table in enumerate(self.study.tables)}
        published = {}
        for row in self.rows:
            recipe, train_flags = self.row_recipe(row), self.train_flags(row)
            results = published_results(recipe, self.setting.variant, train_flags)
            plain = self.recipe.for_arch(recipe.arch)
            if not results and self._recipe_for(row).model_dump() == plain.model_dump():
                # The variant changes nothing for this architecture.
                results = published_results(recipe, None, train_flags)
            if results:
                preferred = min(results, key=lambda result: ranks.get(result.table, len(ranks)))
                published[row.key] = PublishedScores(self.setting.recipe, preferred.scores, row.value)
        if published or self.setting_name == self.study.first_setting:
            return published
        return StudyRuns(self.study, self.study.first_setting, self.options).published_scores()
