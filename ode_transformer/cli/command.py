"""The ``ode-transformer`` command.

A subcommand is a module with ``add_arguments(parser)`` and ``run(args) -> int`` (the exit status), and one
line in ``COMMANDS``. Only the module of the subcommand in use is imported, so that ``--help`` stays quick.
"""

import argparse
import importlib
import logging
import sys
from collections.abc import Sequence

from ode_transformer.support.errors import UserError

# name: (module, what it does)
COMMANDS = {
    "average": ("ode_transformer.checkpoints.averaging", "average the parameters of several checkpoints"),
    "score": (
        "ode_transformer.metrics.score_command",
        "BLEU, chrF, ROUGE, perplexity, corrections and error rates of a system's output",
    ),
    "translate": ("ode_transformer.decoding.translate", "translate text, line by line"),
    "coefficients": (
        "ode_transformer.analysis.depth.coefficients",
        "the stage weights of a trained model, layer by layer",
    ),
    "probe-linear": (
        "ode_transformer.analysis.linear_probe.probe_linear",
        "what a model loses when one of its layers becomes a linear map",
    ),
    "gradient-norms": (
        "ode_transformer.analysis.depth.gradient_norms",
        "how much of the loss's gradient reaches each layer",
    ),
    "convert": (
        "ode_transformer.checkpoints.released",
        "checkpoints of the authors' released code under the names of this package",
    ),
    "truncation-error": (
        "ode_transformer.analysis.depth.truncation_error",
        "how exact the steps of trained models are as solutions of y' = F(y), layer by layer",
    ),
    "splitting-error": (
        "ode_transformer.analysis.depth.splitting_error",
        "how exact a step of a splitting is, measured",
    ),
    "compare": (
        "ode_transformer.analysis.comparison.compare",
        "translations of several systems: lengths, BLEU, accuracy by position and frequency, attention maps",
    ),
    "examples": (
        "ode_transformer.analysis.comparison.examples",
        "what several systems make of chosen sentences, side by side",
    ),
    "user-dir": ("ode_transformer.cli.user_dir", "the folder for --user-dir of fairseq's commands"),
    "flags": ("ode_transformer.cli.flags", "the flags that this package adds to fairseq-train, and its architectures"),
    "scale": (
        "ode_transformer.analysis.scaling.scale",
        "a larger architecture by one step along two measured gradients",
    ),
    "measure-scaling": (
        "ode_transformer.studies.measure_scaling",
        "what depth and width are worth to an architecture, by short trainings, and a larger one",
    ),
    "glue": (
        "ode_transformer.glue.glue_command",
        "fine-tune a pre-trained encoder on the eight GLUE tasks of the Macaron Net paper",
    ),
    "pretraining-text": (
        "ode_transformer.glue.pretraining_text",
        "prepare plain text for pre-training with fairseq's task masked_lm",
    ),
    "bert-demo": (
        "ode_transformer.glue.bert_demo",
        "pre-train a small encoder, fine-tune it, and compare with training from scratch",
    ),
    "curves": (
        "ode_transformer.analysis.curves.curves",
        "training and validation curves of some runs, by their logs or TensorBoard files",
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand.

    :param argv: the arguments without the program's name; ``sys.argv`` by default
    :return: exit status: the subcommand's own, 2 for a user's error, 130 when interrupted
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    parser = argparse.ArgumentParser(prog="ode-transformer", description="Tools around ODE Transformer models.")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    run = None
    for name, (module_name, summary) in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        if argv[:1] == [name]:
            module = importlib.import_module(module_name)
            module.add_arguments(subparser)
            run = module.run
    logging.disable(logging.INFO)  # fairseq logs how it imports and loads
    args = parser.parse_args(argv, argparse.Namespace(words=argv))  # for a record of the command
    assert run is not None  # the parser accepts no command that is not in the table
    try:
        status: int = run(args)
        return status
    except UserError as error:
        message = str(error)
    except OSError as error:
        if error.strerror is None:
            raise
        message = error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    except KeyboardInterrupt:
        return 130
    print(f"ode-transformer {args.command}: error: {' '.join(message.split())}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
