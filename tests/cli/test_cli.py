"""The command line: quick to start, errors in one line, commands from one table."""

import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

import ode_transformer
from ode_transformer.cli import command as cli
from ode_transformer.support.errors import OptionError, UserError


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
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (UserError("a.pt: broken"), "a.pt: broken"),
        (UserError("two\n  lines \x1b"), "two lines �"),
        (OptionError("--dropout 2: too large"), "--dropout 2: too large"),
        (SystemExit("fairseq gives up"), "fairseq gives up"),
        (FileNotFoundError(2, "No such file or directory", "b.pt"), "b.pt: No such file or directory"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (MemoryError(), "MemoryError: (--traceback shows where)"),
        (KeyError("a"), "KeyError: 'a' (--traceback shows where)"),
        (ValueError("two\nlines"), "ValueError: two lines (--traceback shows where)"),
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


def test_interrupt(command):
    command(failing_with(KeyboardInterrupt()))
    assert cli.main(["try"]) == 130


@pytest.mark.parametrize("arguments", [[], ["unknown"], ["checkpoint", "average"]])
def test_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="2"):
        cli.main(arguments)
    assert "error:" in capsys.readouterr().err


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="0"):
        cli.main([name, "--help"])
    assert capsys.readouterr().out.startswith(f"usage: ode-transformer {name}")


def test_help_loads_nothing_heavy():
    program = (
        "import sys\n"
        "from ode_transformer.cli.command import main\n"
        "try:\n"
        "    main(['--help'])\n"
        "except SystemExit:\n"
        "    heavy = {'torch', 'fairseq', 'numpy', 'matplotlib', 'sacrebleu'} & set(sys.modules)\n"
        "    sys.exit(f'loaded {heavy}' if heavy else 0)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(ode_transformer.__file__).parent.parent)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["analyse", "curves", "./a.log", "--csv", "a.log"],
        ["checkpoint", "average", "a.log", "b.log", "--output", "b.log"],
        ["translate", "--path", "a.log", "--input", "b.log", "--output", "a.log"],
        ["checkpoint", "convert", "a.log", "--output", "a.log"],
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
