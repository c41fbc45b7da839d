"""``ode-transformer user-dir``: the folder that fairseq's ``--user-dir`` takes, wherever the package is installed."""

import argparse
from pathlib import Path

import ode_transformer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare no argument."""


def run(args: argparse.Namespace) -> int:
    """Print the folder of the package."""
    print(Path(ode_transformer.__file__).resolve().parent)
    return 0
