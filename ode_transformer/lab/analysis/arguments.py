"""Options of the commands of ``analyse``, each a function of the command's name: quick to import, without PyTorch."""

import argparse
import re
from functools import partial
from pathlib import Path

from ode_transformer.lab.analysis.curves import LOGGED_BY, WHAT
from ode_transformer.lab.analysis.plots import FORMATS
from ode_transformer.lab.metrics.registry import METRICS
from ode_transformer.lab.metrics.translation_scores import TOKENIZERS
from ode_transformer.support.arguments import (
    add_pieces_argument,
    add_search_arguments,
    add_systems,
    positive_float,
    positive_int,
    rising_numbers,
    whole_numbers,
)

OUTPUT = "log of fairseq-generate, or text with a line for each sentence,"
SENTENCE_METRICS = ("chrf", "per")  # metrics that mean something for a single sentence
LEAST_SQUARES, LIKELIHOOD = OBJECTIVES = "least-squares", "nll"
METRIC_NAMES = tuple(name for name, metric in METRICS.items() if metric.statistics)  # those of one number


def add_data_arguments(parser: argparse.ArgumentParser, split: str, sentences: int | None) -> None:
    """Declare the data on which models are measured."""
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="folder of fairseq-preprocess")
    parser.add_argument("--split", default=split, help="split of the data (default: %(default)s)")
    sentences_help = f"its first N sentences, or samples of a language model (default: {sentences or 'all'})"
    parser.add_argument("--sentences", type=positive_int, default=sentences, metavar="N", help=sentences_help)


def add_output_arguments(parser: argparse.ArgumentParser, plot: bool = True, table: bool = True) -> None:
    """Declare the files to write, if the command can draw or has a table."""
    if plot:
        plot_help = f"file for a plot, in the format of its end: {FORMATS}"
        parser.add_argument("--output", type=Path, metavar="FILE.png", help=plot_help)
    if table:
        parser.add_argument("--csv", type=Path, metavar="FILE.csv", help="file for the numbers")


def add_measurement(parser: argparse.ArgumentParser, sentences: int, plot: bool = True, table: bool = True) -> None:
    """Declare checkpoints, data and files to write."""
    add_systems(parser, "checkpoint")
    add_data_arguments(parser, "valid", sentences)
    add_output_arguments(parser, plot, table)


coefficients = partial(add_measurement, sentences=512, plot=False, table=False)
stage_inputs = partial(add_measurement, sentences=64, plot=False)
gradient_norms = partial(add_measurement, sentences=512)
splitting_error = partial(add_output_arguments, table=False)


def truncation_error(parser: argparse.ArgumentParser) -> None:
    add_measurement(parser, sentences=64)
    add = parser.add_argument
    split_names, names = partial(re.split, ","), "euler,rk2,rk4"
    add("--schemes", type=split_names, default=names, metavar="NAME,...", help=f"default: {names}")
    add("--steps", type=rising_numbers, default=[1], metavar="N,N,...", help="steps of size 1/N (default: 1)")
    add("--tolerance", type=positive_float, default=1e-5, help="relative error of the solution (default: 1e-5)")
    steps_help = "RK4 steps that the solution may take (default: 1024)"
    add("--max-steps", type=positive_int, default=1024, help=steps_help)


def linear_probe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, metavar="CHECKPOINT", help="trained translation model")
    add_data_arguments(parser, "test", None)
    add = parser.add_argument
    add("--output", type=Path, required=True, metavar="DIR", help="folder of the results; the same command resumes")
    add("--stack", choices=("encoder", "decoder"), help="layers of this stack only (default: of both)")
    add("--layer", type=positive_int, metavar="N", help="only layer N (default: all in turn)")
    add("--objective", choices=OBJECTIVES, default=LEAST_SQUARES, help="default: least-squares")
    add("--updates", type=positive_int, default=1000, help="of --objective nll (default: 1000)")
    add("--lr", type=positive_float, default=1e-3, help="its first learning rate (default: 0.001)")
    add("--seed", type=positive_int, default=1, help="its order of the batches (default: 1)")
    add("--train-sentences", type=positive_int, metavar="N", help="fit on the first N sentences (default: all)")
    add("--max-tokens", type=positive_int, default=4096, help="tokens in a training batch (default: 4096)")
    add("--metric", choices=METRIC_NAMES, default="bleu", help="metric (default: bleu)")
    add("--tokenize", choices=TOKENIZERS, help="BLEU's tokenizer (default: that for the language)")
    add_search_arguments(parser)


def outputs(parser: argparse.ArgumentParser) -> None:
    add_systems(parser, "checkpoint")
    add_data_arguments(parser, "test", None)
    add, numbers = parser.add_argument, "N,N,..."
    output_help = "folder for the results; a second run reuses its translations"
    add("--output", type=Path, required=True, metavar="DIR", help=output_help)
    add("--maps", type=rising_numbers, default=[], metavar=numbers, help="attention maps of these sentences, from 1 on")
    lengths_help = "last length or position of each bucket but the open one (default: 10,20,30,40,50)"
    add("--lengths", type=rising_numbers, default=[10, 20, 30, 40, 50], metavar=numbers, help=lengths_help)
    frequencies_help = "last frequency of each bucket but the open one (default: 0, 9, 99 and so on, by powers of ten)"
    powers = [10**exponent - 1 for exponent in range(7)]
    add("--frequencies", type=whole_numbers, default=powers, metavar=numbers, help=frequencies_help)
    references = "further references of the test set, besides that of the data: texts with a sentence on each line"
    add("--more-references", type=Path, nargs="+", default=[], metavar="FILE", help=references)
    add("--tokenize", choices=TOKENIZERS, help="BLEU's tokenizer (default: that for the language)")
    add("--lowercase", action="store_true", help="BLEU ignores case")
    add_search_arguments(parser)


def examples(parser: argparse.ArgumentParser) -> None:
    add_systems(parser, OUTPUT)
    parser.add_argument("--source", type=Path, metavar="FILE", help="sources (default: the S- lines of a log)")
    parser.add_argument("--references", type=Path, metavar="FILE", help="references (default: the T- lines of a log)")
    add_pieces_argument(parser)
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--lines", type=rising_numbers, metavar="N,N,...", help="these sentences, from 1 on")
    most_different_help = "the N sentences whose scores differ most between the first and the last system"
    choice.add_argument("--most-different", type=positive_int, metavar="N", help=most_different_help)
    metric_help = "score of a sentence (default: chrf; per: errors per word or phoneme)"
    parser.add_argument("--metric", choices=SENTENCE_METRICS, default="chrf", help=metric_help)
    parser.add_argument("--output", type=Path, metavar="FILE.md", help="write the tables to a file, too")


def error_types(parser: argparse.ArgumentParser) -> None:
    add_systems(parser, OUTPUT)
    parser.add_argument("--gold", type=Path, required=True, metavar="FILE.m2", help="M2 file of annotated corrections")
    parser.add_argument("--types", type=positive_int, default=12, metavar="N", help="the N most frequent (default: 12)")
    add_output_arguments(parser)


def curves(parser: argparse.ArgumentParser) -> None:
    add_systems(parser, "folder or log of a run")
    what_help = f"{', '.join(WHAT)}, or depth/encoder/*/gradient_norm, ... (default: loss)"
    parser.add_argument("--what", default="loss", metavar="WHAT", help=what_help)
    parser.add_argument("--by", choices=LOGGED_BY, default="updates", help="default: updates")
    add_output_arguments(parser)
