"""Each command that a page, a recipe or a study names is one that its program accepts.

A command of a recipe or study is rehearsed, and the commands that it would run are checked as well. Each command line
is checked once, and of models that differ in numbers only one is built: tests/lab/recipes counts the parameters of the
others.
"""

import argparse
import contextlib
import io
import re
from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from fairseq import options
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, BaseFairseqModel
from models_for_tests import model_key
from recorded_commands import ROOT, recorded_commands, shell_blocks

import ode_transformer.models  # noqa: F401  (registers what fairseq's parsers offer)
from ode_transformer.cli import command
from ode_transformer.lab.recipes import needs
from ode_transformer.lab.recipes.experiment import Experiment
from ode_transformer.lab.recipes.options import RunOptions, find_recipe, recipe_names
from ode_transformer.lab.recipes.recipe import read_recipe
from ode_transformer.lab.studies import find_study, study_names
from ode_transformer.lab.studies.study import Study, read_study
from ode_transformer.lab.studies.study_runs import StudyRuns
from ode_transformer.models import fairseq_parser
from ode_transformer.support import commands

BLOCKS = {page: shell_blocks(page) for page in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])}
PAGES = [page for page, blocks in BLOCKS.items() if blocks]
RECIPES = [name for name in recipe_names() if not name.startswith("quickstart")]
STUDIES = {name: read_study(find_study(name)) for name in study_names()}
REHEARSALS = [["reproduce", name] for name in RECIPES]  # which have tests of their own
REHEARSALS += [["study", name] for name in STUDIES]
REHEARSALS += [["study", name, "--setting", setting] for name, study in STUDIES.items() for setting in study.settings]
NAMES = {"study": study_names()} | dict.fromkeys(("prepare", "train", "reproduce"), [*recipe_names(), "glue"])
PARSERS: dict[str, Callable[[], argparse.ArgumentParser]] = {
    "fairseq-preprocess": options.get_preprocessing_parser,
    "fairseq-train": options.get_training_parser,
    "fairseq-validate": options.get_validation_parser,
    "fairseq-generate": options.get_generation_parser,
    "fairseq-interactive": lambda: options.get_generation_parser(interactive=True),
    "fairseq-eval-lm": options.get_eval_lm_parser,
}
CHOICES = ("--arch", "-a", "--task", "--criterion", "--optimizer", "--lr-scheduler")  # which add flags of their own
SEED_AND_FOLDER = ("--seed", "--save-dir", "--tensorboard-logdir")


class RefusedArgumentsError(BaseException):  # not an Exception, which the command would turn into a line
    """What argparse says of a command line."""


@cache
def parser_of(program: str, choices: tuple[str, ...]) -> argparse.ArgumentParser:
    """Return the parser of a program of fairseq with the flags of the words that choose an architecture and so on."""
    parser = PARSERS[program]()
    if program != "fairseq-preprocess":
        options.parse_args_and_arch(parser, ["data", *choices], parse_known=True)
    return parser


def check_fairseq(program: str, words: Sequence[str]) -> Namespace:
    if program == "fairseq-train" and "--arch" not in words:
        raise RefusedArgumentsError("--arch is required")
    pairs = zip(words, words[1:], strict=False)
    return parser_of(program, tuple(word for pair in pairs if pair[0] in CHOICES for word in pair)).parse_args(words)


@pytest.fixture(autouse=True)
def check_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let argparse raise its complaint, let nothing run, and parse trainings and build their models only once."""

    def refuse(parser: argparse.ArgumentParser, message: str) -> None:
        raise RefusedArgumentsError(f"{parser.prog}: {message}")

    def parse_training(words: Sequence[str]) -> Namespace:
        pairs = zip(("", *words), words, strict=False)
        return settings(tuple("1" if flag in SEED_AND_FOLDER else word for flag, word in pairs))

    monkeypatch.setattr(argparse.ArgumentParser, "error", refuse)
    monkeypatch.setattr(commands, "run", lambda *_, **__: pytest.fail("something was run"))
    monkeypatch.setattr(commands, "subprocess", None)
    monkeypatch.setattr(commands, "print_command", lambda shown, *_: printed.append(list(map(str, shown))))
    monkeypatch.setattr(fairseq_parser, "parse_training", parse_training)
    monkeypatch.setattr(needs, "model_of", model_of)
    monkeypatch.setattr(needs, "training_hours", training_hours)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")


@cache
def settings(words: tuple[str, ...]) -> Namespace:
    """Return the options of a training by the same parser as all others with its choices."""
    args = check_fairseq("fairseq-train", words)
    ARCH_CONFIG_REGISTRY[args.arch](args)
    return args


build, estimate = needs.model_of, needs.training_hours
built: list[BaseFairseqModel] = []
counted: set[type[BaseFairseqModel]] = set()
kinds: set[tuple[object, ...]] = set()
printed: list[list[str]] = []  # the commands that a rehearsed one shows


def model_of(experiment: Experiment) -> BaseFairseqModel:
    """Build the model of an experiment, unless one differed in numbers alone; then the last one stands for it."""
    arch, *values = model_key(experiment.train_settings)
    kind = ARCH_MODEL_REGISTRY[arch], *(re.sub(r"\b[\d.]+", "1", value) for value in values)
    if kind not in kinds:
        built[:] = [build(experiment)]
        kinds.add(kind)
    return built[0]


def training_hours(experiment: Experiment, model: BaseFairseqModel) -> float:
    """Count the operations of one model of each class; others take an hour."""
    if type(model) in counted:
        return 1
    counted.add(type(model))
    return estimate(experiment, model)


@cache
def check_command(words: tuple[str, ...]) -> None:
    """Raise an error if a program does not take its arguments."""
    program, *arguments = words
    if program == "bash":
        script = (ROOT / arguments[0]).read_text(encoding="utf-8")
        subcommand = re.search(r"^run_subcommand ([a-z -]+)", script, re.MULTILINE)
        if subcommand is not None:
            check_command(("ode-transformer", *subcommand[1].split(), *arguments[1:]))
        else:
            assert all(re.search(rf"(?<!\w){argument}\b", script) for argument in arguments[1:])
    elif program == "ode-transformer":
        parser = argparse.ArgumentParser()
        subparser, module = command.add_commands(parser, command.COMMANDS, arguments)
        command.parse(parser, subparser, arguments)
        assert module is not None
        if len(arguments) > 1 and arguments[1] in NAMES.get(arguments[0], ()):
            if arguments not in REHEARSALS:
                rehearse(arguments)
        elif "--" in arguments:
            flags = arguments[arguments.index("--") + 1 :]
            assert {word for word in flags if word.startswith("--")} <= training_flags()
    elif program == "torchrun":
        check_command(words[words.index("fairseq-train") :])
    elif program.startswith("fairseq-"):
        check_fairseq(program, arguments)
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
    return {flag for words in models for flag in parser_of("fairseq-train", words + fixed)._option_string_actions}


def rehearse(words: Sequence[str]) -> list[list[str]]:
    """Let a command show its commands, on eight GPUs if it says nothing of them; check and return them."""
    own = list(words[: words.index("--")] if "--" in words else words)
    machine = [] if {"--gpus", "prepare"} & set(own) else ["--gpus", "8"]
    printed.clear()
    with contextlib.redirect_stdout(io.StringIO()):
        assert command.main([*own, "--dry-run", *machine, *words[len(own) :]]) == 0
    shown = list(printed)
    assert shown or ("study" in own and "--table" in own)  # which trains nothing
    assert list(Path.cwd().iterdir()) == []
    for command_words in shown:
        if command_words[0] not in ("torchrun", "fairseq-train"):
            check_command(tuple("path" if "/" in word else word for word in command_words))
    return shown


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_shows_commands_that_are_accepted(page: Path, tmp_path: Path) -> None:
    for number, block in enumerate(BLOCKS[page]):
        assert block.inline or "…" not in block.text, "a command that is shown as a block is complete"
        for words in recorded_commands(block, tmp_path / str(number)):
            try:
                check_command(tuple(word for word in words if "…" not in word))
            except RefusedArgumentsError as error:
                complaint = f"{block.name}: {error}"
                assert block.inline, complaint
                assert re.search("required|expected", complaint), complaint  # in a sentence, it may lack arguments


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_rehearsed(name: str) -> None:
    recipe, shown = read_recipe(find_recipe(name)), rehearse(["reproduce", name])
    programs = [words[words.index("fairseq-train")] if words[0] == "torchrun" else words[0] for words in shown]
    sets = len(recipe.sets)
    assert programs == [
        *("fairseq-preprocess", "fairseq-train", "ode-transformer"),
        *[recipe.decoder] * sets,
        *["ode-transformer"] * len(recipe.score) * sets,
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "study"), STUDIES.items(), ids=STUDIES)
def test_a_study_is_rehearsed(name: str, study: Study) -> None:
    """And at one value of the axis no two systems are the same; at another, a control may be what a system is here."""
    for setting in study.settings:
        rehearse(["study", name, *([] if setting == study.first_setting else ["--setting", setting])])
        runs = StudyRuns(study, setting, RunOptions(gpus=8, dry_run=True))
        trained = [(row.value, experiment.folder) for row in runs.rows for experiment in runs.experiments(row, (1, 2))]
        assert len(set(trained)) == len(trained)
