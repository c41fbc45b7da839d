"""The way of a study: train and evaluate the missing runs, collect all scores, write the results."""

from collections.abc import Sequence
from functools import partial
from math import inf
from pathlib import Path

from ode_transformer import __version__
from ode_transformer.lab.pages.runs import STUDY_FILE
from ode_transformer.lab.recipes import run_experiment, workflow
from ode_transformer.lab.recipes.experiment import Experiment
from ode_transformer.lab.recipes.options import RunOptions
from ode_transformer.lab.studies import equal_footing, paired_comparison
from ode_transformer.lab.studies.analyses import analysis_commands
from ode_transformer.lab.studies.results import StudyResults, StudyTable
from ode_transformer.lab.studies.study import Row, Study, Tuning, read_study
from ode_transformer.lab.studies.study_runs import MAX_BITS, StudyRuns
from ode_transformer.support import commands
from ode_transformer.support.console import print_progress
from ode_transformer.support.errors import UserError, one_line
from ode_transformer.support.files import content_digest, write_text
from ode_transformer.support.jobs import Jobs, Manifest
from ode_transformer.support.provenance import provenance
from ode_transformer.support.tables import csv_text
from ode_transformer.support.yaml_file import owner_name


def tune(runs: StudyRuns, rows: Sequence[Row]) -> list[str]:
    """Train each system with every combination of the setting's grid; return a line for each failure."""
    if (tuning := runs.setting.tuning) is None:
        return []
    of_rows = ((f"{row}, {name}", trial) for row in rows for name, trial in runs.trials(row).items())
    trials = {f"{name}, seed {tuning.seed}": trial for name, trial in of_rows}
    if not runs.options.dry_run:
        trials = {name: trial for name, trial in trials.items() if not run_experiment.is_trained(trial)}
    folders = {name: trial.folder for name, trial in trials.items()}
    failures = workflow.run_all(folders, lambda name: run_experiment.train(trials[name]))
    for row in rows:
        if not runs.options.dry_run and (chosen := runs.chosen_trial(row)):
            print(f"{row}: {chosen}", flush=True)
    if runs.options.dry_run:
        print("\nThe following runs take the flags of each system's trial with the lowest validation loss.")
    return failures


def train_and_evaluate(experiments: Sequence[tuple[Row, Experiment]]) -> list[str]:
    """Train and evaluate the missing runs; return a line for each failure."""
    by_name = {f"{row}, seed {experiment.seed}": experiment for row, experiment in experiments}

    def train_and_evaluate_one(name: str) -> None:
        run_experiment.train(by_name[name])
        run_experiment.evaluate(by_name[name])

    return workflow.run_all({name: run.folder for name, run in by_name.items()}, train_and_evaluate_one)


def analyse(study: Study, experiments: Sequence[tuple[Row, Experiment]], folder: Path, dry_run: bool) -> list[str]:
    """Run the analyses of a study that are not current, or print their commands; return a line for each failure."""
    failures = []
    runs = [(str(row), experiment) for row, experiment in experiments]
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
            print_progress(failures[-1])
    return failures


def tuning_rows(runs: StudyRuns, tuning: Tuning) -> list[list[str]]:
    """Return the validation perplexity of each trial of each system, and the chosen one, the heads first."""
    rows = [["system", *tuning.candidates, "chosen"]]
    for row in runs.rows:
        losses = runs.trial_losses(row)
        values = [f"{2 ** losses[name]:.2f}" if losses.get(name, inf) < MAX_BITS else "" for name in tuning.candidates]
        rows.append([str(row), *values, runs.chosen_trial(row) or ""])
    return rows


def claim_results(folder: Path, file: Path) -> None:
    """Record the file of a study in the folder of its results, so that another of its name does not replace them."""
    owner, manifest = owner_name(file, folder), Manifest(folder)
    if (earlier := manifest.entries().get("study", owner)) != owner:
        raise UserError(f"{folder}: has the results of another study, {one_line(earlier)}; choose another --output")
    manifest.record(study=owner)


def run_study(
    file: Path, setting_name: str, rows: Sequence[Row], options: RunOptions, table_only: bool, command: Sequence[str]
) -> None:
    """Run a study and write its results.

    :param rows: those to train
    """
    study = read_study(file)
    recipe = Path(study.settings[setting_name].recipe).stem  # of a recipe's name or file
    if table_only and not options.dry_run and not any(options.output.glob(f"{recipe}*/*/train.log")):
        raise UserError(f"--table: {options.output} has no run of --setting {setting_name}: train without --table")
    folder = options.output / "studies" / f"{file.stem}-{setting_name}"
    if not options.dry_run:
        claim_results(folder, file)
    runs = StudyRuns(study, setting_name, options)
    failures, planned = [], []
    if not table_only:
        workflow.prepare(runs.data, options)
        failures = tune(runs, rows)
        seeds = [seed for seed in options.seeds if seed is not None] or study.seeds
        by_row = [(row, runs.experiments(row, seeds)) for row in rows if options.dry_run or runs.is_tuned(row)]
        planned = [(row, of_row[n]) for n in range(len(seeds)) for row, of_row in by_row]  # for each seed all systems
        failures += train_and_evaluate(planned)
    if not options.dry_run:
        results = runs.results()
        write_results(runs, results, folder, command)
        planned = [(row, experiment) for row, experiment, _ in runs.complete_runs]
    failures += analyse(study, planned, folder, options.dry_run)
    if not options.dry_run and results.runs:
        workflow.write_report(folder, [folder / STUDY_FILE])
    if failures:
        raise UserError(f"{len(failures)} of the runs or analyses failed; the first: {failures[0]}")


def write_results(runs: StudyRuns, results: StudyResults, folder: Path, command: Sequence[str]) -> None:
    """Write the tables and plots of a study's results: its scores, its grid, equal footing, tests over sentences."""
    tables = []
    if (tuning := runs.setting.tuning) is not None:
        rows = tuning_rows(runs, tuning)
        note = f"{tuning.loss.capitalize()} validation perplexity of seed {tuning.seed}; the other runs take the best."
        tables.append(StudyTable("Tuning, before the comparison", rows, note))
        write_text(folder / "tuning.csv", csv_text(rows))
    # The compute of the first system is the unit.
    if results.runs_of(results.rows[0]) and any(run.validations for run in results.runs):
        rows, title = equal_footing.table_rows(results), "Equal updates, equal compute, equal parameters"
        tables.append(StudyTable(title, rows, equal_footing.NOTE))
        write_text(folder / "validations.csv", equal_footing.validation_csv(results))
        equal_footing.draw_validations(results, folder / "validations.png")
    (folder / "paired.csv").unlink(missing_ok=True)
    if tests := list(paired_comparison.paired_tests(results)):
        tables.append(paired_comparison.paired_table(results, tests))
        write_text(folder / "paired.csv", paired_comparison.paired_csv(results, tests))
    print(f"\n{results.write(folder, provenance(command, on_gpu=False), tables)}\n{folder}")
