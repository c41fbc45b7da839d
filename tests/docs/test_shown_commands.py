"""Each command in README and docs is one that the programs accept."""

import argparse
import importlib
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from recorded_commands import ROOT, Block, recorded_commands, shell_blocks

from ode_transformer.cli import command
from ode_transformer.models.fairseq_parser import parser_for

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
BLOCKS = [block for page in PAGES for block in shell_blocks(page)]


class RefusedArgumentsError(BaseException):  # not an Exception, which the command would turn into a line
    """What argparse says of a command line."""


@pytest.fixture(autouse=True)
def parse_and_do_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let subcommands parse their arguments and stop; let argparse raise its complaint."""

    def refuse(parser: argparse.ArgumentParser, message: str) -> None:
        raise RefusedArgumentsError(f"{parser.prog}: {message}")

    monkeypatch.setattr(argparse.ArgumentParser, "error", refuse)
    for module, _ in [*command.COMMANDS.values(), *command.OF_CHECKPOINTS.values(), *command.ANALYSES.values()]:
        if isinstance(module, str):
            monkeypatch.setattr(
                importlib.import_module(f"ode_transformer.{module}"), "run", lambda args: 0, raising=False
            )


def check_command(words: list[str]) -> None:
    """Raise an error if a program does not take its arguments."""
    program, *arguments = words
    if program == "bash":
        script = (ROOT / arguments[0]).read_text(encoding="utf-8")
        subcommand = re.search(r"^run_subcommand ([a-z -]+)", script, re.MULTILINE)
        if subcommand is not None:
            check_command(["ode-transformer", *subcommand[1].split(), *arguments[1:]])
        else:
            assert set(arguments[1:]) <= {"--help", "--fast"}
    elif program == "ode-transformer":
        command.main(arguments)
        flags = arguments[arguments.index("--") + 1 :] if "--" in arguments else []
        assert {word for word in flags if word.startswith("--")} <= training_flags()
    elif program.startswith("fairseq-"):
        parse_fairseq(program, arguments)
    elif program == "python" and arguments[0] == "-m":
        if arguments[1] != "spacy":  # an optional program of ERRANT
            assert find_spec(arguments[1]) is not None
    elif program == "python" and arguments[0].endswith(".py"):
        known = (ROOT / arguments[0]).read_text(encoding="utf-8")
        own = arguments[: arguments.index("--")] if "--" in arguments else arguments
        # A script may declare its options in a loop over their names.
        flags = {word: (f'"{word}"', f'"{word[2:].replace("-", "_")}":') for word in own if word.startswith("--")}
        assert [word for word, forms in flags.items() if not any(form in known for form in forms)] == []
    elif program == "pytest":
        paths = [word.partition("::")[0] for word in arguments if word.startswith("tests")]
        assert [path for path in paths if not (ROOT / path).exists()] == []


@cache
def training_flags() -> set[str]:
    """Return the flags of fairseq-train for the models that have most of them."""
    models = (("--arch", "reformer"), ("--arch", "macaron_bert_tiny", "--task", "masked_lm"))
    fixed = ("--criterion", "label_smoothed_cross_entropy", "--optimizer", "adam", "--lr-scheduler", "inverse_sqrt")
    return {flag for words in models for flag in parser_for("fairseq-train", (*words, *fixed))._option_string_actions}


def parse_fairseq(program: str, arguments: list[str]) -> None:
    from fairseq import options

    import ode_transformer.models  # noqa: F401

    makers = {
        "fairseq-train": options.get_training_parser,
        "fairseq-generate": options.get_generation_parser,
        "fairseq-interactive": lambda: options.get_generation_parser(interactive=True),
        "fairseq-eval-lm": options.get_eval_lm_parser,
        "fairseq-validate": options.get_validation_parser,
        "fairseq-preprocess": options.get_preprocessing_parser,
    }
    parser = makers[program]()
    if program == "fairseq-train" and "--arch" not in arguments:
        raise RefusedArgumentsError("--arch is required")
    if program == "fairseq-preprocess":
        parser.parse_args(arguments)
    else:
        options.parse_args_and_arch(parser, arguments)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
def test_commands_are_accepted(block: Block, tmp_path: Path) -> None:
    assert block.inline or "…" not in block.text, "a command that is shown as a block is complete"
    for words in recorded_commands(block, tmp_path):
        try:
            check_command([word for word in words if "…" not in word])
        except RefusedArgumentsError as error:
            complaint = f"{block.name}: {error}"
            assert block.inline, complaint
            assert re.search("required|expected", complaint), (
                complaint
            )  # within a sentence, a command may lack arguments


@pytest.mark.parametrize(
    "wrong",
    [
        "ode-transformer score --no-such-flag",
        "ode-transformer no-such-command",
        "fairseq-train data --arch no_such_architecture",
        "fairseq-preprocess --destdir data && fairseq-generate data --beam many",
    ],
)
def test_a_wrong_command_is_noticed(wrong: str, tmp_path: Path) -> None:
    *_, last = recorded_commands(Block("here", wrong, inline=False), tmp_path)
    with pytest.raises(RefusedArgumentsError):
        check_command(last)
