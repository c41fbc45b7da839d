"""The ``ode-transformer`` command.

A subcommand is a module with ``add_arguments(parser)`` and ``run(args) -> int`` (the exit status), and one
line in ``COMMANDS``. Only the module of the subcommand in use is imported, so that ``--help`` stays quick.
A subcommand that passes the words after ``--`` to fairseq-train declares it with
``support.arguments.add_train_flags`` and finds them in ``args.train_flags``.
"""

import argparse
import importlib
import itertools
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from ode_transformer.support.arguments import option_names
from ode_transformer.support.console import escaped_output, quiet_interrupts
from ode_transformer.support.errors import UnknownArguments, UserError, is_out_of_memory, one_line, printable_line
from ode_transformer.support.files import check_outputs_are_no_inputs
from ode_transformer.support.subword_models import files_beside_model

# name: (module, what it does)
COMMANDS = {
    "quickstart": (
        "ode_transformer.cli.quickstart",
        "train an ODE Transformer on real text in minutes, translate with it and score the translations",
    ),
    "new": ("ode_transformer.cli.new", "write a recipe for text of one's own, with sizes that fit it"),
    "prepare": (
        "ode_transformer.cli.prepare",
        "prepare the data of a recipe: obtain raw files, clean, tokenise, divide and binarise them",
    ),
    "train": ("ode_transformer.cli.train", "train an architecture with a recipe, or resume a stopped training"),
    "evaluate": (
        "ode_transformer.cli.evaluate",
        "average the checkpoints of a training, decode the test sets and score the output",
    ),
    "reproduce": (
        "ode_transformer.cli.reproduce",
        "prepare, train and evaluate, with several seeds if wanted, and compare with the published results",
    ),
    "study": ("ode_transformer.cli.study", "train and evaluate the systems of a study, and compare them"),
    "average": ("ode_transformer.checkpoints.averaging", "average the parameters of several checkpoints"),
    "verify": (
        "ode_transformer.checkpoints.verification",
        "check that checkpoints run no code, before fairseq's own commands open them",
    ),
    "score": (
        "ode_transformer.metrics.score_command",
        "BLEU, chrF, ROUGE, perplexity, corrections and error rates of a system's output",
    ),
    "translate": ("ode_transformer.decoding.translate", "translate text, line by line"),
    "export": (
        "ode_transformer.export.export_command",
        "write a trained translation model as the folder of another library, such as CTranslate2",
    ),
    "serve": (
        "ode_transformer.pages.serve_command",
        "a page on this machine to try models, and an endpoint that translates",
    ),
    "coefficients": (
        "ode_transformer.analysis.depth.coefficients",
        "the stage weights of a trained model, layer by layer",
    ),
    "stage-inputs": (
        "ode_transformer.analysis.depth.stage_inputs",
        "what the stages of a trained model's steps read and add, layer by layer",
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
        "ode_transformer.checkpoints.conversion",
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
    "error-types": (
        "ode_transformer.analysis.comparison.error_type_plot",
        "corrections of several systems by type of error",
    ),
    "curves": (
        "ode_transformer.analysis.curves.curves",
        "training and validation curves of some runs, by their logs or TensorBoard files",
    ),
    "report": (
        "ode_transformer.pages.report_command",
        "a page to look at, of a run, several runs or a study: curves, depth, attention, outputs side by side",
    ),
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
    "flags": ("ode_transformer.cli.flags", "the flags that this package adds to fairseq-train, and its architectures"),
    "user-dir": ("ode_transformer.cli.user_dir", "the folder for --user-dir of fairseq's commands"),
}

OUTPUTS = ("output", "csv")  # options that name a file to write
NO_PATHS = ("command", "words", "train_flags")  # the command line itself, and what fairseq-train reads

# Subcommands made of jobs that are not done twice.
RESUMABLE = {
    *("quickstart", "prepare", "train", "evaluate", "reproduce", "study"),
    *("measure-scaling", "glue", "pretraining-text", "bert-demo", "probe-linear"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand.

    :param argv: the arguments without the program's name; ``sys.argv`` by default
    :return: exit status: the subcommand's own, 2 for a user's error, 130 when interrupted
    """
    with quiet_interrupts():
        try:
            return _run(list(sys.argv[1:] if argv is None else argv))
        except KeyboardInterrupt:  # before the subcommand starts
            return 130


def _run(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="ode-transformer", description="Tools around ODE Transformer models.")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (_, summary) in COMMANDS.items():
        subparsers.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
    name = argv[0] if argv and argv[0] in COMMANDS else ""
    logging_level = logging.root.manager.disable
    logging.disable(logging.INFO)  # fairseq logs what it imports
    try:
        check_words(argv)
        open_closed_streams()
        with escaped_output():
            module = importlib.import_module(COMMANDS[name][0]) if name else None
            if module is not None:
                module.add_arguments(subparsers.choices[name])
            args = parse(parser, subparsers.choices.get(name), argv)
            assert module is not None  # the parser accepts no other command
            check_output_files(args)
            status: int = module.run(args)
        return status
    except UserError as error:
        message = str(error) + (misplaced_option(subparsers.choices[name], error) if name else "")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == __package__.partition(".")[0]:
            raise
        message = (
            f"{error.name} is not installed: pip install 'ode-transformer[experiments,plots,serve,export,huggingface]'"
        )
    except UnicodeEncodeError as error:
        if error.reason != "surrogates not allowed":
            raise
        excerpt = error.object[max(0, error.start - 20) : error.end + 20]
        message = f"a text of the input contains what UTF-8 cannot write: {ascii(excerpt)}"  # \ud800 in a JSON file
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        message = "out of memory: choose a smaller batch, beam or model, or fewer processes"
    except OSError as error:
        if error.strerror is None:
            raise
        message = error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    except KeyboardInterrupt:
        hint = "; the same command resumes" if name in RESUMABLE else ""
        print(f"ode-transformer {name}: interrupted{hint}", file=sys.stderr)
        return 130
    finally:
        logging.disable(logging_level)
    print(f"ode-transformer {name}: error: {printable_line(message)}", file=sys.stderr)
    return 2


def check_words(argv: Sequence[str]) -> None:
    """Refuse words that no file name or option can have.

    :raises UserError: a word contains a NUL character or is not UTF-8
    """
    for word in argv:
        if "\0" in word:
            raise UserError("an argument contains a NUL character")
        try:
            word.encode()
        except UnicodeEncodeError as error:
            raise UserError(f"an argument is not UTF-8: {one_line(word)}") from error


def open_closed_streams() -> None:
    """Open /dev/null for a closed standard stream, whose place the next file would take.

    :raises UserError: standard output is closed
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115  # for the rest of the process
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None or sys.stdout.closed:
        raise UserError("standard output is closed; redirect it to /dev/null instead")


def parse(
    parser: argparse.ArgumentParser, subparser: argparse.ArgumentParser | None, argv: Sequence[str]
) -> argparse.Namespace:
    """Parse a command line; ``words`` of the result records it.

    :param subparser: of the subcommand
    """
    namespace = argparse.Namespace(words=list(argv))
    takes_train_flags = subparser is not None and subparser.get_default("train_flags") is not None
    before_dashes = list(itertools.takewhile(lambda word: word != "--", argv))
    # argparse itself would first ask for the required option that a misspelt one was meant to be.
    if subparser is not None and (unknown := unknown_options(subparser, before_dashes)):
        refuse(subparser, unknown)
    # Divided by hand, because argparse cannot assign words after -- if options stand between two positionals.
    args, unknown = parser.parse_known_args(before_dashes if takes_train_flags else argv, namespace)
    if takes_train_flags:
        unknown += args.train_flags
        args.train_flags = tuple(argv[len(before_dashes) + 1 :])
    if unknown:
        refuse(subparser or parser, unknown)
    return args


def check_output_files(args: argparse.Namespace) -> None:
    """Refuse a file to write that the command line also names as one to read, or twice, or that a model needs.

    :raises UserError: names the file
    """
    values = {name: _paths(value) for name, value in vars(args).items() if name not in NO_PATHS}
    outputs = [path for name in OUTPUTS for path in values.pop(name, []) if not os.path.isdir(path)]
    inputs = [path for paths in values.values() for path in paths if os.path.isfile(path)]
    folders = {path.parent for path in inputs if path.suffix == ".pt"}
    beside = [file for folder in folders for file in files_beside_model(folder)]
    check_outputs_are_no_inputs(outputs, inputs + beside)


def _paths(value: object) -> list[Path]:
    """Return what could be a path in the value of an option: FILE, a list of files, or NAME=FILE."""
    if isinstance(value, list | tuple):
        return [path for entry in value for path in _paths(entry)]
    if isinstance(value, Path):
        return [value]
    return [Path(value), Path(value.partition("=")[2])] if isinstance(value, str) else []


def refuse(parser: argparse.ArgumentParser, words: Sequence[str]) -> NoReturn:
    """End the command, because its parser does not know these words."""
    parser.error(str(UnknownArguments(words, option_names(parser))))


def unknown_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """Return the words that look like a long option of which a parser has neither the name nor one that begins so."""
    names = option_names(parser)
    return [
        word
        for word in words
        if word.startswith("--") and not any(name.startswith(word.partition("=")[0]) for name in names)
    ]


def misplaced_option(subparser: argparse.ArgumentParser, error: UserError) -> str:
    """Return what to do if fairseq-train refuses an option of the subcommand, behind ``--``; "" otherwise."""
    refused = [word.partition("=")[0] for word in error.words] if isinstance(error, UnknownArguments) else []
    own_options = [name for name in refused if name in option_names(subparser)]
    return f" ({own_options[0]} is an option of {subparser.prog}: write it before --)" if own_options else ""
