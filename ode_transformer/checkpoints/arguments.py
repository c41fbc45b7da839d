"""Command-line arguments of ``ode-transformer checkpoint``: quick to import, without PyTorch."""

import argparse
from pathlib import Path

from ode_transformer.support.arguments import positive_int


def average(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("inputs", nargs="+", type=Path, metavar="DIR_OR_FILE", help="directory of a run, or checkpoints")
    add("--output", required=True, type=Path, metavar="FILE", help="the average (follows a symbolic link)")
    selection = parser.add_mutually_exclusive_group()
    selection.add_argument("--last", type=positive_int, metavar="N", help="the newest N of the folder")
    selection.add_argument("--best", type=positive_int, metavar="N", help="the best N of --keep-best-checkpoints")
    add("--by", choices=("epoch", "update"), help="kind of checkpoints for --last (default: epoch)")
    add("--until", type=positive_int, metavar="K", help="--last: ignore later epochs or updates")


def convert(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("released", type=Path, metavar="FILE", help="checkpoint of the authors' released code")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="our checkpoint (follows a link)")


def verify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoints", nargs="+", type=Path, metavar="FILE", help="checkpoint of ours or of fairseq")
