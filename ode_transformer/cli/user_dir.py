"""``ode-transformer user-dir``: the folder that fairseq's ``--user-dir`` takes, wherever the package is installed."""

import argparse

from ode_transformer.support.files import PACKAGE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare no argument."""


def run(args: argparse.Namespace) -> int:
    """Print the folder of the package."""
    print(PACKAGE)
    return 0
