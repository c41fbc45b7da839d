"""``ode-transformer analyse glue``: prepare the GLUE tasks, fine-tune an encoder on them, write submission files.

ode-transformer analyse glue prepare --pretraining DIR [--raw DIR]
ode-transformer analyse glue finetune --model CHECKPOINT [--dry-run] [-- FLAGS OF fairseq-train]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ode_transformer.glue.grid import read_config
from ode_transformer.glue.grid_search import fine_tune
from ode_transformer.glue.preparation import prepare
from ode_transformer.glue.tasks import TASKS
from ode_transformer.support.arguments import add_train_flags
from ode_transformer.support.errors import UserError
from ode_transformer.support.subword_models import SENTENCEPIECE_FILE
from ode_transformer.support.yaml_file import CONFIGS

CONFIG = CONFIGS / "glue.yaml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``ode-transformer analyse glue``."""
    parser.epilog = "After an interruption the same command continues with the first unfinished job."
    parser.set_defaults(train_flags=())
    stages = parser.add_subparsers(dest="stage", metavar="prepare|finetune", required=True)
    preparation = stages.add_parser("prepare", help="encode the tables of the tasks and write binary data for fairseq")
    preparation.add_argument(
        "--pretraining",
        type=Path,
        required=True,
        metavar="DIR",
        help=f"folder data-bin of pretraining-text, with dict.txt and {SENTENCEPIECE_FILE}",
    )
    preparation.add_argument(
        "--raw", type=Path, metavar="DIR", help="folder with CoLA/train.tsv, ..., instead of downloading the tables"
    )
    tuning = stages.add_parser(
        "finetune", help="train every combination of the grid; predict the test sets with the best"
    )
    tuning.add_argument(
        "--model",
        type=Path,
        required=True,
        metavar="CHECKPOINT",
        help="pre-trained model; its architecture and options are read from the checkpoint",
    )
    tuning.add_argument(
        "--config", type=Path, default=CONFIG, metavar="FILE", help="grid and flags (default: configs/glue.yaml)"
    )
    tuning.add_argument("--dry-run", action="store_true", help="print every command of the grid and run none")
    add_train_flags(tuning, "flags of fairseq-train for every run")
    for stage in (preparation, tuning):
        stage.add_argument(
            "--tasks", default=",".join(TASKS), metavar="NAME,...", help="separated by commas (default: %(default)s)"
        )
        stage.add_argument(
            "--output",
            type=Path,
            default=Path("glue"),
            metavar="DIR",
            help="folder for everything, predictions for the server in its folder submission (default: glue)",
        )


def run(args: argparse.Namespace) -> int:
    """Prepare or fine-tune; return the exit status."""
    names = args.tasks.split(",")
    if unknown := [name for name in names if name not in TASKS]:
        raise UserError(f"--tasks {unknown[0]}: unknown; known are {', '.join(TASKS)}")
    if args.stage == "prepare":
        if args.train_flags:
            raise UserError("flags of fairseq-train go with finetune, not with prepare")
        prepare(names, args.pretraining, args.raw, args.output)
    else:
        fine_tune(names, args.model, args.output, read_config(args.config), args.train_flags, args.dry_run)
    return 0
