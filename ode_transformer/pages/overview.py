"""Tables of a report: what each system is, cost and scored, beside published scores."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from ode_transformer.metrics.metric import Settings
from ode_transformer.metrics.registry import METRICS
from ode_transformer.metrics.score_command import parse_recorded, read_systems
from ode_transformer.metrics.significance import BootstrapResult, half_interval, paired_bootstrap
from ode_transformer.pages.measurements import Measurements
from ode_transformer.pages.runs import ReportedRun, train_command
from ode_transformer.support.errors import UserError


@dataclass(frozen=True)
class OverviewRow:
    """A row of the table of systems.

    :param scores: value with its interval, a text for each title
    :param published: whether a paper reports the scores
    """

    name: str
    scores: list[str]
    seeds: str = ""
    parameters: str = ""
    operations: str = ""
    updates: str = ""
    minutes: str = ""
    total: str = ""
    published: bool = False


def score_titles(runs: Sequence[ReportedRun]) -> list[str]:
    """Return the titles of all scores, of published ones those that a run has."""
    return list(dict.fromkeys(title for run in runs for title in run.scores))


def overview_rows(
    systems: Mapping[str, Sequence[ReportedRun]], measured: Mapping[str, Measurements | None]
) -> list[OverviewRow]:
    """Return a row for each system, then the published scores."""
    titles = score_titles([run for runs in systems.values() for run in runs])
    intervals = bootstrap_results(systems)
    rows = []
    for name, runs in systems.items():
        measurements = measured.get(name)
        scores = [
            _score_text([r.scores[t].value for r in runs if t in r.scores], intervals.get((name, t))) for t in titles
        ]
        seeds = ", ".join(str(run.seed) for run in runs if run.seed is not None)
        row: dict[str, Any] = {"seeds": seeds, "updates": _spread([run.updates for run in runs], "{:,.0f}")}
        row["minutes"] = _spread([run.minutes for run in runs], "{:,.1f}")
        if measurements is not None:
            row["parameters"] = f"{measurements.parameters:,}"
            row["operations"] = operations_text(measurements.operations)
            each = runs[0].operations_per_update(measurements.operations)
            row["total"] = operations_text(each * (runs[0].updates or 0)) if each else ""
        rows.append(OverviewRow(name, scores, **row))
    published = {}
    for run in (run for runs in systems.values() for run in runs):
        for entry in run.experiment.get("published", ()):
            published[f"{entry['table']}: {entry['system']}"] = entry["scores"]
    rows += [
        OverviewRow(name, [f"{scores[t]:.2f}" if t in scores else "" for t in titles], published=True)
        for name, scores in published.items()
    ]
    return rows


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
    text = f"{mean(values):.2f}" + ("" if half is None else f" ± {half:.2f}")
    if bootstrap is not None and bootstrap.difference is not None and len(values) == 1:
        text += f" (p = {bootstrap.difference.p_value:.3f})"
    return text


def bootstrap_results(systems: Mapping[str, Sequence[ReportedRun]]) -> dict[tuple[str, str], BootstrapResult]:
    """Resample the test sentences of the systems with a single run, score by score.

    :return: system and title -> its scores over the samples, with p of the difference to the first of all systems, if
        that has a single run, too
    """
    results: dict[tuple[str, str], BootstrapResult] = {}
    outputs: dict[str, dict[str, tuple[Sequence[str], Settings]]] = {}  # title -> system -> output and settings
    metrics: dict[str, str] = {}
    for name, runs in systems.items():
        if len(runs) == 1:
            for title, metric_name, output in _scored_outputs(runs[0]):
                outputs.setdefault(title, {})[name] = output
                metrics[title] = metric_name
    for title, of_systems in outputs.items():
        metric = METRICS[metrics[title]]
        _, first = next(iter(of_systems.values()))
        names = [name for name, (_, settings) in of_systems.items() if settings == first]
        tests = paired_bootstrap([[metric.sentence_statistics(*of_systems[name])] for name in names])
        if names[0] != next(iter(systems)):
            tests = [replace(test, difference=None) for test in tests]
        results |= {(name, title): test for name, test in zip(names, tests, strict=True)}
    return results


def _scored_outputs(run: ReportedRun) -> list[tuple[str, str, tuple[Sequence[str], Settings]]]:
    """Return title, metric and output of each score that its recorded command lets us resample."""
    outputs = []
    for entry in run.experiment.get("scores", ()):
        log = run.decode_logs.get(entry["split"])
        try:
            args = parse_recorded(entry["command"])
            if len(args.metric) > 1 or METRICS[args.metric[0]].statistics is None or log is None:
                continue
            args.generate_log, args.hypotheses = [log], None
            corpus = run.folder.resolve().parent / "corpus"
            args.references = [corpus / path.name for path in args.references or []]  # folders may have been moved
            (output,) = read_systems(args)
        except (UserError, OSError):  # a log that was cut off, or a corpus that is gone, has no interval
            continue
        outputs += [(title, args.metric[0], output) for title in entry["titles"] if title in run.scores]
    return outputs


@dataclass(frozen=True)
class RunOrigin:
    """Software, machine and commands of a run.

    :param facts: name -> value
    :param commands: what it does -> command line
    """

    title: str
    facts: dict[str, str]
    commands: dict[str, str]


def run_origin(run: ReportedRun) -> RunOrigin:
    """Return software, machine and commands of a run."""
    experiment, facts = run.experiment, {}
    for name, key in (("recipe", "recipe"), ("architecture", "arch"), ("variant", "variant")):
        if experiment.get(key):
            facts[name] = str(experiment[key])
    for key in ("commit", "device", "threads", "torch", "fairseq", "date"):
        if run.origin.get(key):
            facts[key] = str(run.origin[key])
    facts["folder"] = str(run.folder)
    commands = {"train": shlex.join(train_command(experiment, run.origin))}
    recorded: dict[str, list[Any]] = experiment.get("commands", {})
    commands |= {name: shlex.join(map(str, command)) for name, command in recorded.items() if name != "train"}
    for entry in experiment.get("scores", ()):
        commands[f"score {', '.join(map(str, entry['titles']))}"] = shlex.join(map(str, entry["command"]))
    seed = "" if run.seed is None else f", seed {run.seed}"
    return RunOrigin(run.name + seed, facts, {name: command for name, command in commands.items() if command})


def corpus_file(run: ReportedRun, name: str) -> Path | None:
    """Return a file of the corpus that the run's data were made from; None if it is not there."""
    path = run.folder.resolve().parent / "corpus" / name
    return path if path.is_file() else None
