"""Options of ``serve`` and ``report``: quick to import, without PyTorch."""

import argparse
from pathlib import Path

from ode_transformer.decoding.translate import add_model_arguments
from ode_transformer.support.arguments import (
    add_systems,
    non_negative_int,
    positive_float,
    positive_int,
    rising_numbers,
)


def serve(parser: argparse.ArgumentParser) -> None:
    add_systems(parser, "checkpoint")
    add_model_arguments(parser)
    add = parser.add_argument
    add("--data", type=Path, metavar="DIR", help="folder with the dictionaries (default: the model's)")
    add("--schemes", nargs="+", default=[], metavar="NAME", help="serve each model also stepped by these schemes")
    add("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1, this machine)")
    add("--port", type=non_negative_int, default=8000, help="port; 0 for any free one (default: 8000)")
    add("--max-bytes", type=positive_int, default=1_000_000, help="bytes of a request (default: 1000000)")
    add("--max-lines", type=positive_int, default=1000, help="lines of a request (default: 1000)")
    add("--max-waiting", type=positive_int, default=5000, help="lines of all requests that wait (default: 5000)")
    add("--timeout", type=positive_float, default=120.0, help="seconds until a request is refused (default: 120)")


def report(parser: argparse.ArgumentParser) -> None:
    add_systems(parser, "folder of the run of each system, or of a study's results; seeds of one system have one name:")
    add, page = parser.add_argument, Path("report.html")
    add("--output", type=Path, default=page, metavar="FILE.html", help="the page (default: report.html)")
    add("--data", type=Path, metavar="DIR", help="binarised data (default: data-bin beside the run)")
    add("--split", metavar="NAME", help="split of the sentences (default: the decoded one, or valid)")
    add("--sentences", type=positive_int, default=32, metavar="N", help="measure layers on the first N (default: 32)")
    lines = "sentences for attention and depth, from 1 on (default: short ones on which the systems differ most)"
    add("--lines", type=rising_numbers, metavar="N,N,...", help=lines)
    add("--examples", type=positive_int, default=12, metavar="N", help="outputs to show side by side (default: 12)")
    add("--logs-only", action="store_true", help="load no model: show only what was written down")
