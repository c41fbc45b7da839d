"""Commands of checkpoints that need fairseq: a file is read, or refused, before fairseq is imported, for seconds."""

from argparse import Namespace

from ode_transformer.checkpoints.reading import load_checkpoint, save_checkpoint
from ode_transformer.support.console import print_text
from ode_transformer.support.files import check_writable


def convert(args: Namespace) -> None:
    check_writable(args.output)
    released = load_checkpoint(args.released)
    from ode_transformer.models.conversion import convert_checkpoint
    from ode_transformer.nn import STACKS, read_choices

    converted = convert_checkpoint(released)
    save_checkpoint(converted, args.output)
    options = vars(converted["args"]) | {"ode_options_saved": True}
    encoder, decoder = read_choices(options, STACKS).values()
    print_text(
        f"{args.output}: {encoder.scheme} with coefficients {encoder.coefficients}, function {encoder.function}, "
        f"layer history {encoder.history} and {decoder.history}, "
        f"{sum(tensor.numel() for tensor in converted['model'].values()):,} numbers"
    )


def verify(args: Namespace) -> None:
    """Print a line for each checkpoint, and end at the first that is refused."""
    for path in args.checkpoints:
        state = load_checkpoint(path)
        from ode_transformer.models.verification import verify_checkpoint

        print_text(verify_checkpoint(path, state))
        del state  # before the next one is read
