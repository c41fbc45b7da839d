"""``ode-transformer report``: one page about a run, several runs or a study, complete in itself.

The page needs no network and no other file. What a run's folder lacks is left out: without a checkpoint or its data
nothing is measured on the model, without a log there are no curves. docs/gallery.md shows a page.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ode_transformer import __version__
from ode_transformer.analysis.one_sentence import readable_tokens
from ode_transformer.analysis.plots import new_figure
from ode_transformer.metrics.significance import SAMPLES
from ode_transformer.pages import sentences
from ode_transformer.pages.curve_figures import logged_depth_figures, training_figures
from ode_transformer.pages.depth_figures import error_figures, norm_figures, path_figures
from ode_transformer.pages.measurements import CHOSEN, FLOW_SENTENCES, Measurements, measure_run
from ode_transformer.pages.overview import corpus_file, overview_rows, run_origin, score_titles
from ode_transformer.pages.page import environment, render_page
from ode_transformer.pages.runs import ReportedRun, read_runs, systems_of
from ode_transformer.support.arguments import flag_name, positive_int, rising_numbers
from ode_transformer.support.console import print_progress
from ode_transformer.support.errors import UserError
from ode_transformer.support.files import check_writable, write_text

SENTENCES = 32  # on which layers are measured, unless the user says how many
METRIC_NAMES = {"chrf": "chrF", "per": "errors per word"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``ode-transformer report``."""
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="folders of runs, or one folder with the results of a study"
    )
    parser.add_argument(
        "--output", type=Path, default=Path("report.html"), metavar="FILE.html", help="the page (default: report.html)"
    )
    parser.add_argument("--names", nargs="+", metavar="NAME", help="names of the runs; runs of one name are one system")
    parser.add_argument("--data", type=Path, metavar="DIR", help="binarised data (default: data-bin beside the run)")
    parser.add_argument("--split", metavar="NAME", help="split of the sentences (default: the decoded one, or valid)")
    parser.add_argument(
        "--sentences", type=positive_int, metavar="N", help=f"measure layers on the first N (default: {SENTENCES})"
    )
    parser.add_argument(
        "--lines",
        type=rising_numbers,
        metavar="N,N,...",
        help="sentences for attention and depth, from 1 on (default: short ones on which the systems differ most)",
    )
    parser.add_argument(
        "--examples", type=positive_int, default=12, metavar="N", help="outputs to show side by side (default: 12)"
    )
    parser.add_argument("--logs-only", action="store_true", help="load no model: show only what was written down")


def run(args: argparse.Namespace) -> int:
    """Write the page and print where it lies."""
    if args.output.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"--output {args.output}: a page is a file with the end .html")
    check_writable(args.output)
    for option in ("data", "split", "sentences", "lines"):
        if args.logs_only and getattr(args, option):
            raise UserError(f"--logs-only loads no model: it does not go with {flag_name(option)}")
    new_figure(1, 1), environment()  # a missing library is an error before the work, not after it
    runs, study = read_runs(args.runs, args.names, args.data)
    command = shlex.join(["ode-transformer", *args.words])
    page = build_report(runs, study, args, command)
    write_text(args.output, page)
    print(f"report: {args.output} ({len(page.encode()) / 1e6:.1f} MB), for a browser")
    return 0


def build_report(runs: Sequence[ReportedRun], study: Mapping[str, Any], args: argparse.Namespace, command: str) -> str:
    """Return the page as HTML.

    :param study: content of the study's file; empty without one
    :param command: that writes the page
    """
    systems, count = systems_of(runs), args.sentences or SENTENCES
    decoded = sentences.decoded_split(systems)
    notes, outputs = [], None
    try:
        outputs = sentences.read_system_outputs(systems, decoded) if decoded else None
    except UserError as error:  # a log that was cut off, or of other sentences
        notes.append(f"No outputs side by side: {error}.")
    metric = "per" if "PER" in score_titles(runs) else "chrf"
    split = args.split or (decoded if outputs is not None else None) or "valid"
    numbers = args.lines
    if numbers is None and outputs is not None and split == decoded:
        numbers = sorted(sentences.chosen_numbers(outputs, metric, CHOSEN, sentences.LONGEST_CHOSEN)) or None
    measured = {} if args.logs_only else measure_systems(systems, split, count, numbers)
    compared, edits = [], {}
    if outputs is not None:
        gold = corpus_file(runs[0], f"{decoded}.m2")
        edits = sentences.read_edits(outputs, gold)
        shown = sentences.chosen_numbers(outputs, metric, args.examples)
        compared = sentences.compared_sentences(outputs, shown, metric, edits)
    logged = {
        name: [run.logged(measured[name].operations if name in measured else None) for run in of_system]
        for name, of_system in systems.items()
    }
    several = len(systems) > 1
    recipe = next((str(run.experiment["recipe"]) for run in runs if run.experiment.get("recipe")), "")
    names = ", ".join(systems)
    return render_page(
        "report.html",
        ("attention_map.js", "report.js"),
        title=str(study.get("title") or recipe or names),
        subtitle=[str(study[key]) for key in ("source", "criterion") if study.get(key)] or ([names] if recipe else []),
        titles=score_titles(runs),
        rows=overview_rows(systems, measured),
        table_note=f"± is half of a 95% interval: over seeds by Student's t where a system has several, otherwise over "
        f"{SAMPLES:,} draws of the test sentences, where the metric allows it; p against the first system by the "
        "paired bootstrap test. Operations: of matrix products, for a sentence of 25 tokens forward, and for the "
        "training three times those of its tokens. Published scores are in italics.",
        study_tables=study.get("tables", []),
        notes=notes,
        training=training_figures(logged),
        training_note="Continuous lines are training, dashed ones validation. Of several seeds the line is the mean, "
        "within a band from the least to the greatest.",
        depth=depth_sections(systems, logged, measured),
        split_note=f"the first {count} sentences of {split}",
        error_note=f"the first {min(count, FLOW_SENTENCES)} sentences of {split}",
        attention=attention_section(measured),
        surprisal=sentences.surprisal_rows(measured),
        language_models=runs[0].is_language_model,
        sentences=compared,
        sentences_title="Corrections" if edits else "Outputs side by side" if several else "Outputs",
        sentences_note=(
            f"The {len(compared)} sentences on which the first and the last system differ most by "
            f"{METRIC_NAMES[metric]}, largest difference first. In brackets: the score of the sentence."
            if several
            else f"Sentences spread evenly over the set; in brackets their {METRIC_NAMES[metric]}."
        ),
        edits=bool(edits),
        origins=[run_origin(run) for run in runs],
        command=command,
        version=f"ode-transformer {__version__}",
        date=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    )


def measure_systems(
    systems: Mapping[str, Sequence[ReportedRun]], split: str, count: int, numbers: Sequence[int] | None
) -> dict[str, Measurements]:
    """Measure the model of the first run of each system that has one."""
    measured = {}
    for name, runs in systems.items():
        run = next((run for run in runs if run.checkpoint and run.data), None)
        if run is None:
            print_progress(f"{name}: left out, {runs[0].folder} has no checkpoint, or no data-bin beside it: --data")
            continue
        print_progress(f"{name}: measuring {run.checkpoint}")
        measured[name] = measure_run(run, split, count, numbers)
    return measured


def depth_sections(
    systems: Mapping[str, Sequence[ReportedRun]],
    logged: Mapping[str, Any],
    measured: Mapping[str, Measurements],
) -> dict[str, Any] | None:
    """Return the parts of the section on depth; None if there is nothing to show."""
    parts = {
        "logged": logged_depth_figures(logged),
        "can_be_logged": any(run.points for runs in systems.values() for run in runs),
        "weights": [weight_table(name, m) for name, m in measured.items() if m.stage_weights],
        "word_weights": [table for name, m in measured.items() for table in word_tables(name, m)],
        "histories": [table for name, m in measured.items() for table in history_tables(name, m)],
        "norms": norm_figures(measured) if measured else [],
        "paths": [drawing for name, m in measured.items() for drawing in path_figures(name, m.paths)],
        "paths_of": next((m.paths_of for m in measured.values() if m.paths_of), None),
        "errors": error_figures(measured),
        "notes": [f"{name}: {note}." for name, m in measured.items() for note in m.notes],
    }
    return parts if measured or parts["logged"] else None


def weight_table(name: str, measurements: Measurements) -> dict[str, Any]:
    """Return the weights of each block as a table: of its stages, or of earlier layers in a scheme's equation."""
    weights = max(len(row.mean) for row in measurements.stage_weights)
    rows = [
        [row.block, *(f"{m:.3f} ± {d:.3f}" for m, d in zip(row.mean, row.deviation, strict=True))]
        for row in measurements.stage_weights
    ]
    header = ["block", *(f"weight {number}" for number in range(1, weights + 1))]
    return {"name": name, "header": header, "rows": [row + [""] * (weights + 1 - len(row)) for row in rows]}


def word_tables(name: str, measurements: Measurements) -> list[dict[str, Any]]:
    """Return the stage weights at each word of the chosen sentences: a row for each stage of each block."""
    tables = []
    for sentence in measurements.sentences:
        for stack, side in (("encoder", "source"), ("decoder", "prefix")):
            blocks = [entry for entry in sentence.word_weights if entry.block.startswith(stack)]
            if not blocks:
                continue
            rows = [
                (f"{e.block}, stage {n}", list(map(float, row))) for e in blocks for n, row in enumerate(e.weights, 1)
            ]
            tables.append(
                {
                    **{
                        "name": f"{name}, {stack}",
                        "number": sentence.number,
                        "columns": readable_tokens(sentence.tokens[side]),
                    },
                    **{"rows": [title for title, _ in rows], "cells": [values for _, values in rows]},
                }
            )
    return tables


def history_tables(name: str, measurements: Measurements) -> list[dict[str, Any]]:
    """Return the weights of earlier states in the input of each layer, stack by stack."""
    tables = []
    for stack, weights in measurements.histories.items():
        depth = len(weights)
        rows = [f"layer {number}" for number in range(1, depth)] + ["output"]
        values: list[list[float | None]] = [[*row, *[None] * (depth - len(row))] for row in weights]
        columns = ["embedding", *(f"layer {number}" for number in range(1, depth))]
        tables.append({"name": f"{name}, {stack}", "rows": rows, "columns": columns, "cells": values})
    return tables


def attention_section(measured: Mapping[str, Measurements]) -> dict[str, Any] | None:
    """Return the attention maps for the page; None if there are none."""
    first = sentences.first_attention(measured)
    if first is None:
        return None
    matrix, cells = first
    most = max(max(row) for row in cells)
    return {"first": matrix, "cells": cells, "most": most, "data": sentences.attention_data(measured)}
