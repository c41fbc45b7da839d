"""``ode-transformer verify``: check checkpoints of strangers before fairseq's own commands open them."""

from __future__ import annotations

import argparse
from pathlib import Path

from ode_transformer.support.checkpoint_file import load_checkpoint
from ode_transformer.support.checkpoint_schema import check_finite
from ode_transformer.support.errors import UserError


def verify_checkpoint(path: Path) -> str:
    """Check the structure, the options and the numbers of a checkpoint; nothing is built from it.

    :return: a line that says what it holds
    :raises UserError: a part is refused, or fairseq would read another file in its place
    :raises OSError: it cannot be opened
    """
    from ode_transformer.models.saved_model import check_buildable, check_sizes

    shard = path.parent / f"{path.name[:-3]}-shard0.pt"
    if shard.exists():
        raise UserError(f"{path}: fairseq would read {shard.name} in its place: verify and use that one, or remove it")
    state = load_checkpoint(path)
    try:
        args, cfg, architecture = check_buildable(state)
        check_sizes(args or (cfg or {})["model"], state["model"])
        check_finite(state["model"])
    except (UserError, ValueError) as error:
        raise UserError(f"{path}: refused: {error}") from error
    numbers = sum(tensor.numel() for tensor in state["model"].values())
    return f"{path}: {architecture}, {numbers:,} numbers in {len(state['model']):,} tensors; runs no code"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``ode-transformer verify``."""
    parser.add_argument("checkpoints", nargs="+", type=Path, metavar="FILE", help="checkpoint of ours or of fairseq")


def run(args: argparse.Namespace) -> int:
    """Print a line for each checkpoint, and end at the first that is refused."""
    for path in args.checkpoints:
        print(verify_checkpoint(path), flush=True)
    return 0
