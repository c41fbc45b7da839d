"""Tables of a report: what each system is, cost and scored, beside published scores."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import mean
from typing import Any

from ode_transformer.lab.analysis.training_log import TRAIN, Point
from ode_transformer.lab.metrics.metric import Settings
from ode_transformer.lab.metrics.registry import METRICS
from ode_transformer.lab.metrics.score_command import parse_recorded, read_systems
from ode_transformer.lab.metrics.significance import BootstrapResult, half_interval, paired_bootstrap
from ode_transformer.lab.pages.measurements import Measurements
from ode_transformer.lab.pages.runs import ReportedRun, Systems, train_command
from ode_transformer.support.errors import UserError

COSTS = (
    *("Best validation loss", "Parameters", "Operations per sentence"),
    *("Updates", "Minutes", "Operations of training"),
)
NO_BREAK_SPACE = "\N{NO-BREAK SPACE}"
VALIDATIONS = 12  # of a run, at most, in the table


def score_titles(runs: Sequence[ReportedRun]) -> list[str]:
    """Return the titles of all scores, of published ones those that a run has."""
    return list(dict.fromkeys(title for run in runs for title in run.scores))


def overview_rows(systems: Systems, measured: Mapping[str, Measurements]) -> list[list[str]]:
    """Return a row for each system: its name, seeds, scores with intervals, and the columns of ``COSTS``."""
    titles = score_titles([run for runs in systems.values() for run in runs])
    intervals = bootstrap_results(systems)
    rows = []
    for name, runs in systems.items():
        scores = [
            _score_text([r.scores[t].value for r in runs if t in r.scores], intervals.get((name, t))) for t in titles
        ]
        seeds = ", ".join(str(run.seed) for run in runs if run.seed is not None)
        parameters = operations = ""
        if (measurements := measured.get(name)) is not None:
            parameters, operations = f"{measurements.parameters:,}", operations_text(measurements.operations)
        total = operations_text(count) if (count := runs[0].total("operations")) else ""
        updates = _spread([run.total("updates") for run in runs], "{:,.0f}")
        minutes = _spread([run.total("minutes") for run in runs], "{:,.1f}")
        rows.append([name, seeds, *scores, best_validation(runs), parameters, operations, updates, minutes, total])
    return rows


def validations(run: ReportedRun) -> list[Point]:
    """Return the reports of a run on its validation set."""
    return [point for point in run.points if point.split == "valid"]


def best_validation(runs: Sequence[ReportedRun]) -> str:
    """Return the lowest validation loss of a run with its update, or the range of several runs."""
    best = [min(validations(run), key=lambda point: point.loss) for run in runs if validations(run)]
    text = _spread([point.loss for point in best], "{:.2f}")
    return f"{text} at {best[0].updates:,}" if len(best) == 1 else text


def validation_tables(systems: Systems) -> list[dict[str, Any]]:
    """Return the validations of the first run of each system: its sample sentences, and a row for each validation.

    A row has the update, the learning rate, the loss, and the translations of the sentences.
    """
    tables = []
    for name, (run, *_) in systems.items():
        points = validations(run)
        shown = points[:: -max(1, -(-len(points) // VALIDATIONS))][::-1]  # the last one among them
        sentences = list(dict.fromkeys((sample.source, sample.reference) for sample in run.samples))
        outputs = {(sample.updates, sample.source): sample.output for sample in run.samples}
        rates = {p.updates: p.learning_rate for p in run.points if p.split == TRAIN and p.learning_rate is not None}
        rows = []
        for point in shown:
            updates_so_far = [updates for updates in rates if updates <= point.updates]
            rate = f"{rates[max(updates_so_far)]:.3g}" if updates_so_far else ""
            texts = [outputs.get((point.updates, source), "") for source, _ in sentences]
            rows.append([f"{point.updates:,}", rate, f"{point.loss:.2f}", *texts])
        if rows:
            tables.append({"name": name, "sentences": sentences, "rows": rows})
    return tables


def published_rows(runs: Sequence[ReportedRun]) -> list[list[str]]:
    """Return the published scores of the runs' recipes, a row for each system in the form of :func:`overview_rows`."""
    published = {
        f"{entry['table']}: {entry['system']}": entry["scores"]
        for run in runs
        for entry in run.experiment.get("published", ())
    }
    return [
        [name, "", *(f"{scores[t]:.2f}" if t in scores else "" for t in score_titles(runs)), *[""] * len(COSTS)]
        for name, scores in published.items()
    ]


def operations_text(count: float) -> str:
    """Return a count of operations with a decimal prefix, such as ``12.3 M``."""
    for prefix, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {prefix}"
    return f"{count:.0f}"


def _spread(values: Sequence[float | None], form: str) -> str:
    """Return a number, or the least and the greatest where these differ."""
    numbers = [value for value in values if value is not None]
    texts = [form.format(value) for value in (min(numbers), max(numbers))] if numbers else []
    return "–".join(dict.fromkeys(texts))


def _score_text(values: Sequence[float], bootstrap: BootstrapResult | None) -> str:
    if not values:
        return ""
    half = half_interval(values)
    if half is None and bootstrap is not None:
        half = bootstrap.interval
    score = f"{mean(values):.2f}" + ("" if half is None else f" ± {half:.2f}")
    texts = [score]
    if bootstrap is not None and bootstrap.difference is not None and len(values) == 1:
        texts.append(f"(p = {bootstrap.difference.p_value:.3f})")
    return " ".join(text.replace(" ", NO_BREAK_SPACE) for text in texts)  # a line of the table ends between the two


def bootstrap_results(systems: Systems) -> dict[tuple[str, str], BootstrapResult]:
    """Resample the test sentences of the systems with a single run, score by score.

    :return: system and title -> its scores over the samples, with p of the difference to the first of all systems, if
        that has a single run, too
    """
    results: dict[tuple[str, str], BootstrapResult] = {}
    scored = {name: _scored_outputs(runs[0]) for name, runs in systems.items() if len(runs) == 1}
    for title in dict.fromkeys(title for outputs in scored.values() for title in outputs):
        of_systems = {name: outputs[title] for name, outputs in scored.items() if title in outputs}
        metric, _, first = next(iter(of_systems.values()))
        statistics = {
            name: [METRICS[metric].sentence_statistics(hypotheses, settings)]
            for name, (_, hypotheses, settings) in of_systems.items()
            if settings == first
        }
        tests = paired_bootstrap(list(statistics.values()))
        if next(iter(statistics)) != next(iter(systems)):
            tests = [replace(test, difference=None) for test in tests]
        results |= {(name, title): test for name, test in zip(statistics, tests, strict=True)}
    return results


def _scored_outputs(run: ReportedRun) -> dict[str, tuple[str, Sequence[str], Settings]]:
    """Return metric, hypotheses and settings by title, of the scores that their recorded commands let us resample."""
    outputs: dict[str, tuple[str, Sequence[str], Settings]] = {}
    for entry in run.experiment.get("scores", ()):
        log = run.decode_logs.get(entry["split"])
        try:
            args = parse_recorded(entry["command"])
            if len(args.metric) > 1 or METRICS[args.metric[0]].statistics is None or log is None:
                continue
            args.generate_log, args.hypotheses = [log], None
            # Folders may have been moved.
            args.references = [run.corpus / path.name for path in args.references or []]
            ((hypotheses, settings),) = read_systems(args)
        except (UserError, OSError):  # a log that was cut off, or a corpus that is gone, has no interval
            continue
        output = args.metric[0], hypotheses, settings
        outputs |= {title: output for title in entry["titles"] if title in run.scores}
    return outputs


def shell_lines(words: Sequence[str]) -> str:
    """Return a command with a line for each flag, as a shell reads it."""
    return "".join(f" \\\n    {shlex.quote(w)}" if w.startswith("--") else f" {shlex.quote(w)}" for w in words).strip()


def run_origin(run: ReportedRun) -> tuple[str, dict[str, str], dict[str, str]]:
    """Return the title of a run, facts about its software and machine by name, and its commands by what they do."""
    experiment = run.experiment
    names = {"recipe": "recipe", "architecture": "arch", "variant": "variant"}
    facts = {name: experiment.get(key) for name, key in names.items()}
    facts |= {key: run.origin.get(key) for key in ("commit", "device", "threads", "torch", "fairseq", "date")}
    facts["folder"] = run.path
    commands = {"train": train_command(experiment, run.origin)}
    commands |= {name: command for name, command in experiment.get("commands", {}).items() if name != "train"}
    for entry in experiment.get("scores", ()):
        commands[f"score {', '.join(entry['titles'])}"] = entry["command"]
    title = run.name if run.seed is None else f"{run.name}, seed {run.seed}"
    texts = {name: shell_lines([str(word) for word in command]) for name, command in commands.items() if command}
    return title, {name: str(value) for name, value in facts.items() if value}, texts
