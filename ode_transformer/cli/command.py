"""The ``ode-transformer`` command.

A subcommand is an entry of a table: a module with ``run(args)``, or "module:function". Its options are declared by
``add_arguments(parser)`` of the module or, where that imports PyTorch or fairseq, by a function of ``arguments.py``,
so that ``--help`` and refusals of flags come at once; only what is in use is imported.
A subcommand that passes the words after ``--`` to fairseq-train declares it with
``support.arguments.add_train_flags`` and finds them in ``args.train_flags``.

Here is the one place where an exception becomes a line for the user; no other module does that.
"""

import argparse
import importlib
import io
import logging
import os
import select
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from ode_transformer import __version__
from ode_transformer.support import commands
from ode_transformer.support.arguments import option_names
from ode_transformer.support.errors import (
    FAIRSEQ_MISSING,
    UserError,
    describe,
    did_you_mean,
    one_line,
    printable_line,
    unknown_arguments,
)
from ode_transformer.support.files import PACKAGE, check_outputs_are_no_inputs
from ode_transformer.support.subword_models import files_beside_model

# name: (module of this package, what it does)
OF_CHECKPOINTS = {
    "average": ("checkpoints.averaging", "average the parameters of several checkpoints"),
    "convert": ("cli.checkpoints:convert", "convert checkpoints of the authors' released code to this package's names"),
    "verify": ("cli.checkpoints:verify", "check that checkpoints run no code in fairseq's own commands"),
}
ANALYSES = {
    "coefficients": ("lab.analysis.depth.coefficients", "the stage weights of a trained model, layer by layer"),
    "stage-inputs": ("lab.analysis.depth.stage_inputs", "what the stages of steps read and add, layer by layer"),
    "gradient-norms": ("lab.analysis.depth.gradient_norms", "how much of the loss's gradient reaches each layer"),
    "truncation-error": (
        "lab.analysis.depth.truncation_error",
        "how exact the steps of trained models are as solutions of y' = F(y), layer by layer",
    ),
    "splitting-error": ("lab.analysis.depth.splitting_error", "how exact a step of a splitting is, measured"),
    "linear-probe": ("lab.analysis.linear_probe", "what a model loses when one of its layers becomes a linear map"),
    "outputs": (
        "lab.analysis.outputs",
        "translations of several systems: lengths, BLEU, accuracy by position and frequency, attention maps",
    ),
    "examples": ("lab.analysis.examples", "what several systems make of chosen sentences, side by side"),
    "error-types": ("lab.analysis.error_types", "corrections of several systems by type of error"),
    "curves": ("lab.analysis.curves", "training and validation curves of some runs, by their logs"),
    "scaling": ("cli.recipes:scaling", "a larger architecture, by what depth and width gain in short trainings"),
    "glue": ("lab.glue.glue_command", "fine-tune a pre-trained encoder on the eight GLUE tasks of the Macaron paper"),
}
# name: (module of this package, or table of subcommands, what it does)
COMMANDS: dict[str, tuple[str | dict[str, tuple[str, str]], str]] = {
    "quickstart": (
        "cli.recipes:quickstart",
        "train an ODE Transformer on real text in minutes, translate with it and score the translations",
    ),
    "new": ("cli.new", "write a recipe for text of one's own, with sizes that fit it"),
    "prepare": ("cli.recipes:prepare", "prepare the data of a recipe: obtain, clean, tokenise, divide, binarise"),
    "train": ("cli.recipes:train", "train an architecture with a recipe, or resume a stopped training"),
    "evaluate": ("cli.recipes:evaluate", "average the checkpoints of a training, decode and score the test sets"),
    "reproduce": (
        "cli.recipes:reproduce",
        "prepare, train and evaluate, with several seeds if wanted, and compare with the published results",
    ),
    "study": ("cli.recipes:study", "train and evaluate the systems of a study, and compare them"),
    "checkpoint": (OF_CHECKPOINTS, "average, convert and verify checkpoints"),
    "score": ("lab.metrics.score_command", "BLEU, chrF, ROUGE, perplexity, corrections, error rates of an output"),
    "translate": ("decoding.translate", "translate text, line by line"),
    "export": ("export.export_command", "write a trained translation model as the folder of another library"),
    "serve": ("lab.pages.serve_command", "a page on this machine to try models, and an endpoint that translates"),
    "analyse": (ANALYSES, "measure trained models, and compare them with each other"),
    "report": ("lab.pages.report_command", "a page of runs or a study: curves, depth, attention, outputs side by side"),
    "user-dir": ("cli.recipes:user_dir", "the folder for --user-dir of fairseq's commands"),
}
# Arguments that show the use of each command, in its help
EXAMPLES = {
    "average": "checkpoints --last 5 --output model.pt",
    "convert": "released.pt --output model.pt",
    "verify": "model.pt",
    "coefficients": "model.pt --data data-bin",
    "stage-inputs": "model.pt --data data-bin",
    "gradient-norms": "model.pt --data data-bin",
    "truncation-error": "model.pt --data data-bin --schemes euler,rk4",
    "splitting-error": "--output splitting.png",
    "linear-probe": "model.pt --data data-bin --output probe",
    "outputs": "Euler=euler.pt RK2=rk2.pt --data data-bin --output compared",
    "examples": "Euler=euler.log RK2=rk2.log --most-different 5",
    "error-types": "Euler=euler.log RK2=rk2.log --gold test.m2",
    "curves": "Euler=runs/euler RK2=runs/rk2 --output curves.png",
    "scaling": "--arch ode_transformer_rk2_tiny",
    "glue": "--path model.pt --raw glue-tables",
    "quickstart": "--target fr --scheme rk4",
    "new": "my-experiment --train train.en train.de --valid valid.en valid.de",
    "checkpoint": "average checkpoints --last 5 --output model.pt",
    "analyse": "curves Euler=runs/euler RK2=runs/rk2 --output curves.png",
    "prepare": "multi30k_en_de --raw texts",
    "train": "multi30k_en_de --arch ode_transformer_rk2_tiny -- --lr 0.002",
    "evaluate": "multi30k_en_de",
    "reproduce": "multi30k_en_de --seeds 1,2,3",
    "study": "coefficients --setting g2p",
    "score": "--metric bleu chrf --hypotheses test.output --references test.de",
    "translate": "--path model.pt --input test.en --output test.output",
    "export": "--to ctranslate2 --path model.pt --output exported",
    "serve": "Euler=euler.pt RK2=rk2.pt",
    "report": "runs/euler runs/rk2",
}
# Rooms whose commands have their options in ROOM.arguments, as functions of the commands' names
ARGUMENT_ROOMS = {room: room for room in ("checkpoints", "export", "lab.analysis", "lab.pages", "cli")}
ARGUMENT_ROOMS |= {"cli.checkpoints": "checkpoints", "lab.analysis.depth": "lab.analysis", "lab.glue": "cli"}

OUTPUTS = ("output", "csv")  # options that name a file to write
SCHEMES = ("scheme", "schemes")  # options that name schemes
NO_PATHS = ("words", "train_flags")  # the command line itself, and what fairseq-train reads
RESUMABLE = ("quickstart", "prepare", "train", "evaluate", "reproduce", "study", "analyse glue", "analyse linear-probe")
MAX_MESSAGE = 1000  # characters of a library's message, which can list every parameter of a model


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; print any exception in one line, or with ``--traceback`` whole.

    :param argv: the arguments without the program's name; ``sys.argv`` by default
    :return: exit status: 0, 2 after an exception, 130 when interrupted
    """
    command_line = list(sys.argv[1:] if argv is None else argv)
    show_traceback = "--traceback" in command_line[: _own_length(command_line)]
    if show_traceback:
        command_line.remove("--traceback")
    name = command_line[0] if command_line and command_line[0] in COMMANDS else ""
    logging_level = logging.root.manager.disable
    logging.disable(logging.INFO)  # fairseq logs what it imports
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.encoding.lower() != "utf-8":
        sys.stdout.reconfigure(errors="backslashreplace")  # letters that a terminal lacks, as on standard error
    try:
        run_command(command_line)
        sys.stdout.flush()
        return 0
    except KeyboardInterrupt:
        hint = "; the same command resumes" if {name, " ".join(command_line[:2])} & {*RESUMABLE} else ""
        print(f"ode-transformer {name}: interrupted{hint}", file=sys.stderr)
        return 130
    except (Exception, SystemExit) as error:
        if isinstance(error, BrokenPipeError) and hasattr(signal, "SIGPIPE") and _has_no_reader(sys.stdout):
            return 128 + signal.SIGPIPE  # as of any program whose reader, such as head, has ended
        if isinstance(error, SystemExit) and not isinstance(error.code, str):  # argparse has printed its message
            raise
        if show_traceback:
            traceback.print_exc()
        print(f"ode-transformer {name}: error: {error_message(error)}", file=sys.stderr)
        return 2
    finally:
        logging.disable(logging_level)


def _has_no_reader(stream: TextIO) -> bool:
    """Return whether nobody reads a pipe any more; Python's end then writes what is left of the stream nowhere."""
    poll = select.poll()
    poll.register(stream.fileno(), 0)
    ended = bool(poll.poll(0))
    if ended:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())
    return ended


def error_message(error: BaseException) -> str:
    """Return an exception as one line without control characters."""
    if isinstance(error, UserError | SystemExit):
        return printable_line(error)
    if isinstance(error, OSError) and error.strerror:
        return printable_line(f"{error.filename}: {error.strerror}" if error.filename else error.strerror)
    if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("ode_transformer"):
        if error.name == "fairseq":
            return FAIRSEQ_MISSING
        extras = "experiments,plots,serve,export,huggingface"
        return f"{error.name} is not installed: pip install 'ode-transformer[{extras}]'"
    return one_line(describe(error), MAX_MESSAGE) + " (--traceback shows where)"


def run_command(command_line: Sequence[str]) -> None:
    """Parse a command line and run its subcommand; ``args.words`` records the command line."""
    parser = argparse.ArgumentParser(
        prog="ode-transformer",
        description="Tools around ODE Transformer models.",
        epilog="With --traceback, before any --, an error shows where it arose.",
    )
    parser.add_argument("--version", action="version", version=f"ode-transformer {__version__}")
    subparser, source = add_commands(parser, COMMANDS, command_line)
    if not source:
        parser.parse_args(command_line)  # ends with an error or the help
    args = parse(parser, subparser, command_line)
    check_output_files(args)
    use_package(args.user_dir)
    check_schemes(args)
    module, _, function = source.partition(":")
    getattr(importlib.import_module(f"ode_transformer.{module}"), function or "run")(args)


def use_package(folder: Path | None) -> None:
    """Import a package of the user, with all that it registers, for this command and those that it starts."""
    commands.USER_DIR.set(folder or PACKAGE)
    if folder is None:
        return
    if not folder.is_dir():
        raise UserError(f"--user-dir {folder}: not a folder")
    if (folder / "models").exists() or (folder / "tasks").exists():  # whose files fairseq imports, too
        from fairseq import utils

        utils.import_user_module(argparse.Namespace(user_dir=str(folder)))
        return
    parent, name = os.path.split(folder.resolve())
    sys.path.insert(0, parent)
    importlib.import_module(name)


class HelpFormatter(argparse.HelpFormatter):
    """Leaves lines that begin with a space as they are: commands to copy."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines = text.split("\n")
        return "\n".join(
            line if line[:1] == " " else super(HelpFormatter, self)._fill_text(line, width, indent) for line in lines
        )


def add_commands(
    parser: argparse.ArgumentParser, table: Mapping[str, tuple[Any, str]], command_line: Sequence[str]
) -> tuple[argparse.ArgumentParser, str]:
    """Add the command of a table that the words name, with its arguments; all of the table if they name none.

    :return: parser and module of that command; no module if the words name none
    """
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    named = {name: table[name] for name in command_line[:1] if name in table}
    for command, (_, summary) in (named or table).items():
        example = f"  {parser.prog} {command} {EXAMPLES.get(command, '')}".rstrip()
        description = f"{summary[0].upper()}{summary[1:]}. Example:\n{example}"
        subparsers.add_parser(command, help=summary, description=description, formatter_class=HelpFormatter)
    if not named:
        if command_line and not command_line[0].startswith("-"):
            similar = did_you_mean(command_line[0], table)
            parser.error(f"unknown command {command_line[0]}{similar}; there are {', '.join(table)}")
        return parser, ""
    source, subparser = table[command_line[0]][0], subparsers.choices[command_line[0]]
    if not isinstance(source, str):
        return add_commands(subparser, source, command_line[1:])
    module = source.partition(":")[0]
    if room := ARGUMENT_ROOMS.get(module, ARGUMENT_ROOMS.get(module.rpartition(".")[0])):
        options = importlib.import_module(f"ode_transformer.{room}.arguments")
        getattr(options, command_line[0].replace("-", "_"))(subparser)
    else:
        importlib.import_module(f"ode_transformer.{source}").add_arguments(subparser)
    help_text = "package with your own schemes or architectures, as for fairseq (CONTRIBUTING.md)"
    subparser.add_argument("--user-dir", type=Path, metavar="DIR", help=help_text)
    return subparser, source


def parse(
    parser: argparse.ArgumentParser, subparser: argparse.ArgumentParser, command_line: Sequence[str]
) -> argparse.Namespace:
    namespace = argparse.Namespace(words=list(command_line))
    takes_train_flags = subparser.get_default("train_flags") is not None
    options = option_names(subparser)
    names = [word.partition("=")[0] for word in command_line[: _own_length(command_line)]]
    # Before argparse, which would miss the flag that was meant.
    if misspelt := [n for n in names if n.startswith("--") and not any(option.startswith(n) for option in options)]:
        subparser.error(unknown_arguments(misspelt, options))
    # Divided by hand, because argparse cannot assign words after -- if options stand between two positionals.
    length = _own_length(command_line) if takes_train_flags else len(command_line)
    args, unknown = parser.parse_known_args(command_line[:length], namespace)
    if takes_train_flags:
        unknown += args.train_flags
        args.train_flags = tuple(command_line[length + 1 :])
    if unknown:
        subparser.error(unknown_arguments(unknown, options))
    return args


def _own_length(command_line: Sequence[str]) -> int:
    """Return the number of words before ``--``."""
    return command_line.index("--") if "--" in command_line else len(command_line)


def check_output_files(args: argparse.Namespace) -> None:
    """Refuse a file to write that the command line also names as one to read, or that a model needs."""
    values = {name: _paths(value) for name, value in vars(args).items() if name not in NO_PATHS}
    outputs = [path for name in OUTPUTS for path in values.pop(name, []) if not os.path.isdir(path)]
    inputs = [path for paths in values.values() for path in paths if os.path.isfile(path)]
    folders = {path.parent for path in inputs if path.suffix == ".pt"}
    beside = [file for folder in folders for file in files_beside_model(folder)]
    check_outputs_are_no_inputs(outputs, inputs + beside)


def check_schemes(args: argparse.Namespace) -> None:
    """Refuse a word that names no scheme."""
    for option in SCHEMES:
        if value := getattr(args, option, None):
            from ode_transformer.nn import depth_schemes
            from ode_transformer.nn.plugins import load_plugins

            load_plugins()
            schemes = depth_schemes()
            for name in [value] if isinstance(value, str) else value:
                if name not in schemes:
                    similar = did_you_mean(name, schemes)
                    raise UserError(f"--{option} {name}: no scheme{similar}; there are {', '.join(schemes)}")


def _paths(value: object) -> list[Path]:
    """Return what could be a path in the value of an option: FILE, a list of files, or NAME=FILE."""
    if isinstance(value, list | tuple):
        return [path for entry in value for path in _paths(entry)]
    if isinstance(value, Path):
        return [value]
    return [Path(value), Path(value.partition("=")[2])] if isinstance(value, str) else []
