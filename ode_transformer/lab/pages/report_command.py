"""``ode-transformer report``: one page about a run, several runs or a study, complete in itself.

The page needs no network and no other file. What a run's folder lacks is left out: without a checkpoint or its data
nothing is measured on the model, without a log there are no curves. docs/gallery.md shows a page.
"""

import argparse
import shlex
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ode_transformer import __version__
from ode_transformer.lab.analysis.curves import systems_of
from ode_transformer.lab.analysis.examples import SystemOutputs
from ode_transformer.lab.analysis.one_sentence import readable_tokens
from ode_transformer.lab.analysis.plots import new_figure
from ode_transformer.lab.metrics.m2_file import read_m2
from ode_transformer.lab.metrics.max_match import max_match
from ode_transformer.lab.metrics.significance import SAMPLES
from ode_transformer.lab.pages import figures, overview, sentences
from ode_transformer.lab.pages.measurements import CHOSEN, FLOW_SENTENCES, Measurements, measure_run
from ode_transformer.lab.pages.page import render_page
from ode_transformer.lab.pages.runs import ReportedRun, Systems, read_runs
from ode_transformer.support.console import print_progress
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import check_writable, write_text

METRIC_NAMES = {"chrf": "chrF", "per": "errors per word"}


def run(args: argparse.Namespace) -> None:
    """Write the page and print where it lies."""
    check_writable(args.output)
    new_figure(1, 1)  # a missing library is an error before the work, not after it
    runs, study = read_runs(args.systems, args.data)
    page = build_report(runs, study, args)
    write_text(args.output, page)
    print(f"report: {args.output} ({len(page.encode()) / 1e6:.1f} MB), for a browser")


def build_report(runs: Sequence[ReportedRun], study: Mapping[str, Any], args: argparse.Namespace) -> str:
    """Return the page as HTML; the content of the study's file is empty without one."""
    systems = systems_of(runs)
    decoded = sentences.decoded_split(systems)
    flavours = dict.fromkeys(f"{title}: {score.signature}" for run in runs for title, score in run.scores.items())
    notes, outputs = ["; ".join(flavours)] if flavours else [], None
    try:
        outputs = sentences.read_system_outputs(systems, decoded) if decoded else None
    except UserError as error:  # a log that was cut off, or of other sentences
        notes.append(f"No outputs side by side: {error}.")
    metric = "per" if "PER" in overview.score_titles(runs) else "chrf"
    split = args.split or (decoded if outputs is not None else None) or "valid"
    numbers = args.lines
    if outputs is not None and numbers is None and split == decoded:
        numbers = sorted(sentences.chosen_numbers(outputs, metric, CHOSEN, sentences.LONGEST_CHOSEN)) or None
    measured = {} if args.logs_only else measure_systems(systems, split, args.sentences, numbers)
    for name, measurements in measured.items():
        systems[name] = [run.with_operations(measurements.operations) for run in systems[name]]
    recipe = next((str(run.experiment["recipe"]) for run in runs if run.experiment.get("recipe")), "")
    return render_page(
        "report.html",
        ("attention_map.js", "report.js"),
        title=str(study.get("title") or recipe or ", ".join(systems)),
        study=study,
        systems=systems,
        titles=[*overview.score_titles(runs), *overview.COSTS],
        rows=overview.overview_rows(systems, measured),
        published=overview.published_rows(runs),
        samples=SAMPLES,
        notes=notes,
        training=figures.training_figures(systems),
        validations=overview.validation_tables(systems),
        depth=depth_sections(systems, measured),
        split_note=f"the first {args.sentences} sentences of {split}",
        error_note=f"the first {min(args.sentences, FLOW_SENTENCES)} sentences of {split}",
        attention=sentences.attention_section(measured),
        surprisal=sentences.surprisal_rows(measured),
        language_models=runs[0].is_language_model,
        origins=[overview.run_origin(run) for run in runs],
        command=shlex.join(["ode-transformer", *args.words]),
        version=f"ode-transformer {__version__}",
        date=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        **side_by_side(systems, outputs, metric, args.examples, runs[0].corpus / f"{decoded}.m2"),
    )


def side_by_side(
    systems: Collection[str], outputs: SystemOutputs | None, metric: str, count: int, gold: Path
) -> dict[str, Any]:
    """Return what the page shows of the outputs: as edits, if the file of annotated corrections is there."""
    compared, edits = [], {}
    if outputs is not None:
        if gold.is_file():
            annotated = read_m2(gold)
            edits = {name: max_match(hypotheses, annotated) for name, hypotheses in outputs.systems.items()}
        shown = sentences.chosen_numbers(outputs, metric, count)
        compared = sentences.compared_sentences(outputs, shown, metric, edits)
    title = "Corrections" if edits else "Outputs side by side" if len(systems) > 1 else "Outputs"
    return {"sentences": compared, "sentences_title": title, "edits": bool(edits), "metric": METRIC_NAMES[metric]}


def measure_systems(systems: Systems, split: str, count: int, numbers: Sequence[int] | None) -> dict[str, Measurements]:
    """Measure the model of the first run of each system that has one."""
    measured = {}
    for name, runs in systems.items():
        run = next((run for run in runs if run.checkpoint and run.data), None)
        if run is None:
            print_progress(f"{name}: left out, {runs[0].path} has no checkpoint, or no data-bin beside it: --data")
            continue
        print_progress(f"{name}: measuring {run.checkpoint}")
        measured[name] = measure_run(run, split, count, numbers)
    return measured


def depth_sections(systems: Systems, measured: Mapping[str, Measurements]) -> dict[str, Any] | None:
    """Return the parts of the section on depth; None if there is nothing to show."""
    parts = {
        "logged": figures.logged_depth_figures(systems),
        "can_be_logged": any(run.points for runs in systems.values() for run in runs),
        "weights": {name: m.stage_weights for name, m in measured.items() if m.stage_weights},
        "word_weights": [table for name, m in measured.items() for table in word_tables(name, m)],
        "histories": [(f"{name}, {stack}", w) for name, m in measured.items() for stack, w in m.histories.items()],
        "norms": figures.norm_figures(measured) if measured else [],
        "paths": [drawing for name, m in measured.items() for drawing in figures.path_figures(name, m.paths)],
        "paths_of": next((m.paths_of for m in measured.values() if m.paths_of), None),
        "errors": figures.error_figures(measured),
        "notes": [f"{name}: {note}." for name, m in measured.items() for note in m.notes],
    }
    return parts if measured or parts["logged"] else None


def word_tables(name: str, measurements: Measurements) -> list[dict[str, Any]]:
    """Return the stage weights at each word of the chosen sentences: a row for each stage of each block."""
    tables = []
    for sentence in measurements.sentences:
        for stack, side in (("encoder", "source"), ("decoder", "prefix")):
            rows: dict[str, list[float]] = {}
            for block, weights in sentence.word_weights.items():
                if block.startswith(stack):
                    rows |= {f"{block}, stage {number}": row.tolist() for number, row in enumerate(weights, 1)}
            if rows:
                title, columns = f"{name}, {stack}, sentence {sentence.number}", readable_tokens(sentence.tokens[side])
                tables.append({"title": title, "columns": columns, "rows": rows})
    return tables
