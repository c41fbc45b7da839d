"""Command-line arguments of ``ode-transformer analyse glue``: quick to import, without PyTorch."""

import argparse
from pathlib import Path

from ode_transformer.lab.glue.tasks import TASKS
from ode_transformer.support.arguments import add_train_flags
from ode_transformer.support.subword_models import SENTENCEPIECE_FILE
from ode_transformer.support.yaml_file import CONFIGS


def glue(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``ode-transformer analyse glue``."""
    parser.epilog = "After an interruption the same command continues with the first unfinished job."
    add = parser.add_argument
    model = "pre-trained model; its architecture and options are read from the checkpoint"
    add("--path", type=Path, required=True, metavar="CHECKPOINT", help=model)
    pieces = f"folder with dict.txt and {SENTENCEPIECE_FILE} (default: the model's)"
    add("--data", type=Path, metavar="DIR", help=pieces)
    add("--raw", type=Path, metavar="DIR", help="folder with CoLA/train.tsv, ..., instead of downloading the tables")
    grid = "grid and flags (default: configs/glue.yaml)"
    add("--config", type=Path, default=CONFIGS / "glue.yaml", metavar="FILE", help=grid)
    add("--tasks", default=",".join(TASKS), metavar="NAME,...", help="separated by commas (default: %(default)s)")
    output = "folder for everything, predictions for the server in its folder submission (default: glue)"
    add("--output", type=Path, default=Path("glue"), metavar="DIR", help=output)
    add("--dry-run", action="store_true", help="print every command of the grid and run none")
    add_train_flags(parser, "flags of fairseq-train for every run")
