"""``ode-transformer analyse outputs``: translations of several systems (Reformer, Li et al. 2020, Figures 3-5).

    Figure 3    length of the translations / length of the references; BLEU by the length of the source
    Figure 4    accuracy of single tokens, by target position and by frequency in the training data
    Figure 5    attention maps

The output folder holds ``tables.md`` with all tables, ``results.json`` with all numbers, a CSV file and a plot for
each table, and ``attention`` with a plot and the weights of each map.
"""

from __future__ import annotations

import argparse
import json
import shlex
from dataclasses import fields
from pathlib import Path

from ode_transformer.analysis.comparison.attention_plots import write_maps
from ode_transformer.analysis.comparison.compare_tables import SystemResults, TestSet, comparison_tables
from ode_transformer.analysis.comparison.system_results import ComparedSystem, ComparisonOptions
from ode_transformer.analysis.plots import new_figure
from ode_transformer.analysis.systems import add_data_arguments, named_systems
from ode_transformer.metrics.metric import Settings
from ode_transformer.metrics.translation_scores import TOKENIZERS, bleu
from ode_transformer.support.arguments import (
    add_search_arguments,
    add_systems,
    positive_int,
    rising_numbers,
)
from ode_transformer.support.console import print_progress
from ode_transformer.support.files import write_text

LENGTHS = (10, 20, 30, 40, 50)  # ends of the buckets of source lengths and target positions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``ode-transformer analyse outputs``."""
    add_systems(parser, "checkpoint")
    add_data_arguments(parser, "test", None)
    parser.add_argument(
        "--output",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder for the results; a second run reuses what it finds there",
    )
    parser.add_argument(
        "--maps",
        type=rising_numbers,
        default=[],
        metavar="N,N,...",
        help="attention maps of these sentences, from 1 on",
    )
    parser.add_argument(
        "--lengths",
        type=rising_numbers,
        default=list(LENGTHS),
        metavar="N,N,...",
        help="last length or position of each bucket but the open one (default: 10,20,30,40,50)",
    )
    parser.add_argument("--tokenize", choices=TOKENIZERS, default="13a", help="BLEU's flavour (default: 13a)")
    parser.add_argument("--lowercase", action="store_true", help="BLEU ignores case")
    add_search_arguments(parser)
    parser.add_argument(
        "--max-tokens",
        type=positive_int,
        default=4096,
        help="tokens in a batch when the accuracy of tokens is measured (default: 4096)",
    )


def run(args: argparse.Namespace) -> int:
    """Print the tables; write them, the numbers and the plots into the output folder."""
    paths = named_systems(args)
    options = ComparisonOptions(**{field.name: getattr(args, field.name) for field in fields(ComparisonOptions)})
    new_figure(1, 1)  # a missing matplotlib is an error before the work, not after it

    results: dict[str, SystemResults] = {}
    digests: dict[str, str] = {}
    test: TestSet | None = None
    for name, path in paths.items():
        print_progress(f"{name}: {path}")
        system = ComparedSystem(options, name, path)
        test = test or TestSet(args.split, system.references(), system.source_lengths(), system.frequencies())
        results[name], digests[name] = SystemResults(system.hypotheses(), system.accuracy()), system.digest
        maps = system.maps()
        if args.maps and not maps:
            print_progress(f"  {name} shows no attention")
        write_maps(maps, name, args.output / "attention")
    assert test is not None  # argparse asks for one system at least
    if test.frequencies is None:
        print_progress(f"{args.data}: no training data in it, so no accuracy by frequency")
    tables = comparison_tables(results, test, args.lengths, args.tokenize, args.lowercase)
    for table in tables:
        write_text(args.output / f"{table.name}.csv", table.csv())
        if table.name != "summary" and table.can_be_drawn():
            title = f"{args.data.resolve().name}, {len(test.references):,} sentences of {test.name}"
            table.draw(args.output / f"{table.name}.png", title)
    settings = Settings(test.references, tokenize=args.tokenize, lowercase=args.lowercase)
    record = {
        "command": shlex.join(["ode-transformer", *args.words]),
        "signature": bleu(test.references, settings)[0].signature,
        "systems": {name: {"path": str(path), "content": digests[name]} for name, path in paths.items()},
        "tables": {table.name: vars(table) for table in tables},
    }
    write_text(args.output / "results.json", json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    text = "\n".join(table.markdown() for table in tables)
    write_text(args.output / "tables.md", text)
    print(text, end="")
    return 0
