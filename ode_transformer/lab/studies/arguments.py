"""Command-line arguments of ``ode-transformer analyse scaling``: quick to import, without PyTorch."""

import argparse
from pathlib import Path

from ode_transformer.support.arguments import add_train_flags, positive_int, whole_numbers


def scaling(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``ode-transformer analyse scaling``."""
    parser.epilog = "After an interruption the same command resumes where it stopped. Every fairseq command is printed."

    add = parser.add_argument
    add("--arch", metavar="NAME", help="registered architecture to scale")
    add("--layers", type=positive_int, metavar="L", help="joint layers of Eq. 8, instead of --arch")
    add("--ffn-ratio", type=float, metavar="W", help="inner size / width of these layers")
    gradients = ("L'_l", "L'_w")
    add("--gradients", type=float, nargs=2, metavar=gradients, help="by depth and by width (default: measured)")
    add("--beta", type=float, default=2.0, help="how many times as many parameters (default: 2)")
    sizes = "sizes of the dictionaries with their special symbols, to count with embeddings"
    add("--dictionaries", type=positive_int, nargs=2, metavar=("SOURCE", "TARGET"), help=sizes)
    add("--recipe", default="quickstart_text", help="recipe of the trainings' data and flags (default: %(default)s)")
    add("--data", type=Path, metavar="DIR", help="folder of fairseq-preprocess instead; all flags then stand after --")
    add("--raw", type=Path, metavar="DIR", help="raw files of the recipe, instead of downloading them")
    for flag, folder, text in (
        ("--experiments", "experiments", "folder of recipes' data"),
        ("--output", "scaling", "folder for everything else"),
    ):
        add(flag, type=Path, metavar="DIR", default=Path(folder), help=f"{text} (default: {folder})")
    add("--updates", type=positive_int, default=1000, metavar="N", help="of each training (default: 1000)")
    epsilon = "layers, or widths of inner size, added to measure a gradient (default: 1)"
    add("--epsilon", type=positive_int, default=1, metavar="E", help=epsilon)
    seeds = "three trainings for each; gradients are averaged (default: 1)"
    add("--seeds", type=whole_numbers, default=(1,), metavar="S,S,...", help=seeds)
    add_train_flags(parser, "flags of fairseq-train, which override the recipe's")
