"""Commands that convert and check checkpoints."""

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ode_transformer.checkpoints.plain_model import NeedsFairseq
from ode_transformer.checkpoints.reading import load_checkpoint, save_checkpoint
from ode_transformer.checkpoints.verification import verify_checkpoint
from ode_transformer.decoding.trained_model import check_fairseq
from ode_transformer.support.console import print_text
from ode_transformer.support.files import check_writable


def convert(args: Namespace) -> None:
    from ode_transformer.checkpoints.conversion import convert_checkpoint
    from ode_transformer.nn import STACKS, read_choices

    check_writable(args.output)
    released = load_checkpoint(args.released)
    converted = convert_checkpoint(released)
    save_checkpoint(converted, args.output)
    encoder, decoder = read_choices(vars(converted["args"]), STACKS, trained=True).values()
    print_text(
        f"{args.output}: {encoder.scheme} with coefficients {encoder.coefficients}, function {encoder.function}, "
        f"layer history {encoder.history} and {decoder.history}, "
        f"{sum(tensor.numel() for tensor in converted['model'].values()):,} numbers"
    )


def verify(args: Namespace) -> None:
    """Print a line for each checkpoint, and end at the first that is refused."""
    for path in args.checkpoints:
        print_text(checked(path, load_checkpoint(path)))


def checked(path: Path, state: Mapping[str, Any]) -> str:
    """Return the line of a checkpoint; one that only fairseq can build is checked by it, where it is installed."""
    try:
        return verify_checkpoint(path, state)
    except NeedsFairseq as reason:
        check_fairseq(path, reason)
    from ode_transformer.models.verification import verify_fairseqs

    return verify_fairseqs(path, state)
