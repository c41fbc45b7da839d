"""The command line: quick to start, errors in one line, commands from one table."""

import io
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

import ode_transformer
from ode_transformer.cli import command as cli
from ode_transformer.support.console import print_text
from ode_transformer.support.errors import UserError


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch):
    """Install a subcommand ``try`` that runs the given function."""

    def install(run):
        module = types.ModuleType("trial_command")
        module.add_arguments = lambda parser: parser.add_argument("--number", type=int, default=0)
        module.run = run
        monkeypatch.setitem(sys.modules, "ode_transformer.trial_command", module)
        monkeypatch.setitem(cli.COMMANDS, "try", ("trial_command", "try something"))

    return install


def failing_with(error: BaseException):
    def run(args):
        path = Path(__file__)  # noqa: F841  (is not to be blamed)
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (UserError("a.pt: broken"), "a.pt: broken"),
        (UserError("two\n  lines \x1b"), "two lines �"),
        (SystemExit("fairseq gives up"), "fairseq gives up"),
        (FileNotFoundError(2, "No such file or directory", "b.pt"), "b.pt: No such file or directory"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (KeyError("a"), "KeyError: 'a' (--traceback shows where)"),
        (
            ModuleNotFoundError("No module named 'fastapi'", name="fastapi"),
            "fastapi is not installed: pip install 'ode-transformer[experiments,plots,serve,export,huggingface]'",
        ),
    ],
)
def test_every_error_takes_one_line(command, capsys: pytest.CaptureFixture[str], error: BaseException, message: str):
    command(failing_with(error))
    assert cli.main(["try"]) == 2
    assert capsys.readouterr() == ("", f"ode-transformer try: error: {message}\n")


def test_a_traceback_is_shown_on_request(command, capsys: pytest.CaptureFixture[str]):
    command(failing_with(KeyError("a")))
    assert cli.main(["try", "--traceback"]) == 2
    *traceback, last = capsys.readouterr().err.splitlines()
    assert traceback[0].startswith("Traceback")
    assert traceback[-1] == "KeyError: 'a'"
    assert last.startswith("ode-transformer try: error: KeyError: 'a'")


def test_a_terminal_may_lack_letters(command, monkeypatch: pytest.MonkeyPatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "latin-1"))
    command(lambda args: print_text("  → größer"))
    assert cli.main(["try"]) == 0
    assert written.getvalue() == b"  \\u2192 gr\xf6\xdfer\n"


def test_a_reader_such_as_head_may_end_first(command, monkeypatch, capfd: pytest.CaptureFixture[str]) -> None:
    def print_much(args) -> None:
        print(f"{__file__}\n" * args.number)

    command(print_much)
    for lines in (1, 10_000):  # fewer than Python keeps in memory, and more
        reader, writer = os.pipe()
        os.close(reader)
        with os.fdopen(writer, "w") as stream:
            monkeypatch.setattr(sys, "stdout", stream)
            assert cli.main(["try", "--number", str(lines)]) == 141
    assert capfd.readouterr().err == ""


def test_interrupt(command):
    command(failing_with(KeyboardInterrupt()))
    assert cli.main(["try"]) == 130


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "required: COMMAND"),
        (["reprod"], "unknown command reprod (did you mean reproduce?); there are quickstart, new, "),
        (["translate", "--inpt", "a"], "unrecognized arguments: --inpt (did you mean --input?)"),
    ],
)
def test_wrong_usage(words: list[str], message: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="2"):
        cli.main(words)
    assert message in capsys.readouterr().err


# Help and refusals of every command, in one process; prints the packages that were imported, with the command.
HELP_AND_REFUSALS = """
import contextlib, io, sys
from ode_transformer.cli import command, recipes

def commands(table, *names):
    for name, (source, _) in table.items():
        yield [*names, name]
        if not isinstance(source, str):
            yield from commands(source, *names, name)

recipes.GPU_DEVICES = ()
recipe = ["reproduce", "multi30k_en_de"]
refused = [[*recipe, "--gpus", "8"], [*recipe, "--systems", "a"], ["train", "nosuch"], ["study", "nosuch"], ["nosuch"]]
refused += [[*words, "--table", "nosuch"] for words in (recipe, ["reproduce", "glue"])]
refused += [["study", "depth", flag, "nosuch"] for flag in ("--setting", "--systems")]
refused += [["train", "multi30k_en_de", "--nodes", "2"], ["analyse", "scaling"]]
refused += [["serve", "a.pt", "--temperature", "2"], ["analyse", "glue", "--path", "a.pt", "--tasks", "CoLA,nosuch"]]
for words in [["--version"], *([*c, w] for c in commands(command.COMMANDS) for w in ("--help", "--nosuch")), *refused]:
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output), contextlib.suppress(SystemExit):
        command.main(words)
    if words[-1] == "--help":
        assert "\\n  ode-transformer " + " ".join(words[:-1]) in output.getvalue(), words
    elif words != ["--version"]:
        assert "error: " in output.getvalue(), words
    heavy = {"torch", "fairseq", "transformers", "ctranslate2", "scipy", "matplotlib", "sacrebleu", "fastapi"}
    assert not heavy & set(sys.modules) and len(sys.modules) < 1000, (words, heavy & set(sys.modules), len(sys.modules))
"""


@pytest.mark.parametrize(
    "words",
    [
        ["prepare", "multi30k_en_de", "--arch"],
        ["train", "multi30k_en_de", "--arch"],
        ["evaluate", "multi30k_en_de", "--arch"],
        ["reproduce", "multi30k_en_de", "--arch"],
        ["reproduce", "glue", "--arch"],
        ["new", "mine", "--train", "a.en", "a.de", "--valid", "a.en", "a.de", "--arch"],
        ["quickstart", "--arch"],
        ["analyse", "scaling", "--arch"],
        ["quickstart", "--scheme"],
        ["serve", "a.pt", "--schemes", "rk4"],
        ["analyse", "truncation-error", "a.pt", "--data", "a", "--schemes"],
    ],
)
def test_a_mistyped_name_is_answered_by_the_one_it_resembles(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    typed, meant = ("ode_bert_bas", "ode_bert_base") if words[1] == "glue" else ("macaron_tny", "macaron_tiny")
    if words[-1] != "--arch":
        typed, meant = "midpont", "midpoint"
    assert cli.main([*words, typed]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "error: " in line]
    assert f"(did you mean {meant}?); " in line
    assert not list(tmp_path.iterdir())


# Files that no model is, by all commands that open one, in one process; fairseq is imported for none of them.
REFUSED_CHECKPOINTS = """
import contextlib, io, os, sys
import torch
from ode_transformer.cli import command
from ode_transformer.export.arguments import FORMATS

def checkpoint(**model):
    return {"model": {"encoder.a": torch.zeros(1)}, "cfg": {"model": model, "task": {"_name": "translation"}}}

torch.save(checkpoint(encoder_layers=10**9), "huge.pt")
open("broken.pt", "w").write("no checkpoint")
os.mkfifo("pipe.pt")
commands = ["translate --path", "serve --port 0", *(f"export --output o --to {to} --path" for to in FORMATS)]
for words in [*commands, *(f"checkpoint {words}" for words in ("verify", "convert --output o", "average --output o"))]:
    for file in ["huge.pt", "broken.pt", "pipe.pt"]:
        output = io.StringIO()
        with contextlib.redirect_stderr(output):
            assert command.main([*words.split(), file]) == 2, (words, file)
        assert f"error: {file}: " in output.getvalue() and output.getvalue().count("\\n") == 1, output.getvalue()
        assert "fairseq" not in sys.modules, (words, file)
"""


@pytest.mark.parametrize("code", [HELP_AND_REFUSALS, REFUSED_CHECKPOINTS], ids=["flags", "checkpoints"])
def test_refusals_import_nothing_heavy(code: str, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(Path(ode_transformer.__file__).parent.parent)}
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["analyse", "curves", "./a.log", "--csv", "a.log"],
        ["analyse", "examples", "a=a.log", "b=b.log", "--lines", "1", "--output", "b.log"],
    ],
)
def test_no_command_writes_over_what_it_reads(words: list[str], tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.log", "b.log"):
        Path(name).write_text(name)
    assert cli.main(words) == 2
    assert f"{words[-1]}: an input of this command, which the output would replace" in capsys.readouterr().err
    assert [path.read_text() for path in sorted(Path().iterdir())] == ["a.log", "b.log"]


@pytest.mark.parametrize("name", ["dict.de.txt", "sentencepiece.bpe.model", "bpecodes"])
def test_no_command_writes_over_what_a_model_needs(name: str, tmp_path: Path, capsys) -> None:
    for file in ("model.pt", name):
        (tmp_path / file).write_text(file)
    words = ["translate", "--path", str(tmp_path / "model.pt"), "--input", os.devnull, "--output", str(tmp_path / name)]
    assert cli.main(words) == 2
    assert f"{name}: an input of this command, which the output would replace" in capsys.readouterr().err
    assert (tmp_path / name).read_text() == name
