"""The command line: quick to start, errors in one line, commands from one table."""

import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

import ode_transformer
from ode_transformer.cli import command as cli
from ode_transformer.support.errors import UserError


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch):
    """Install a subcommand ``try`` that runs the given function."""

    def install(run):
        module = types.ModuleType("trial_command")
        module.add_arguments = lambda parser: parser.add_argument("--number", type=int, default=0)
        module.run = run
        monkeypatch.setitem(sys.modules, "trial_command", module)
        monkeypatch.setitem(cli.COMMANDS, "try", ("trial_command", "try something"))

    return install


def failing_with(error: BaseException):
    def run(args):
        raise error

    return run


def test_a_command_is_one_line_in_the_table(command, capsys: pytest.CaptureFixture[str]):
    command(lambda args: args.number)
    assert cli.main(["try", "--number", "5"]) == 5
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--help"])
    assert "try something" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (UserError("a.pt: broken"), "a.pt: broken"),
        (UserError("two\n  lines"), "two lines"),
        (FileNotFoundError(2, "No such file or directory", "b.pt"), "b.pt: No such file or directory"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (MemoryError(), "out of memory: choose a smaller batch, beam or model, or fewer processes"),
        (
            RuntimeError("CUDA out of memory. Tried to allocate"),
            "out of memory: choose a smaller batch, beam or model, or fewer processes",
        ),
        (
            UnicodeEncodeError("utf-8", "a" * 99 + "\ud800", 99, 100, "surrogates not allowed"),
            f"a text of the input contains what UTF-8 cannot write: '{'a' * 20}\\ud800'",
        ),
    ],
)
def test_errors_take_one_line(command, capsys: pytest.CaptureFixture[str], error: Exception, message: str):
    command(failing_with(error))
    assert cli.main(["try"]) == 2
    assert capsys.readouterr() == ("", f"ode-transformer try: error: {message}\n")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a mistake of ours"),
        OSError("no error number"),
        UnicodeEncodeError("ascii", "ä", 0, 1, "ordinal not in range(128)"),
    ],
)
def test_our_own_mistakes_keep_their_traceback(command, error: Exception):
    command(failing_with(error))
    with pytest.raises(type(error)):
        cli.main(["try"])


def test_interrupt(command):
    command(failing_with(KeyboardInterrupt()))
    assert cli.main(["try"]) == 130


@pytest.mark.parametrize("arguments", [[], ["unknown"], ["average"]])
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
    ("word", "message"),
    [
        ("a\0b", "an argument contains a NUL character"),
        ("a\udce4b", "an argument is not UTF-8: a�b"),  # a name in Latin-1
    ],
)
def test_an_argument_that_no_file_can_have_is_refused(
    command, capsys: pytest.CaptureFixture[str], word: str, message: str
):
    command(failing_with(AssertionError("not reached")))
    assert cli.main(["try", word]) == 2
    assert capsys.readouterr().err == f"ode-transformer try: error: {message}\n"


def test_a_closed_standard_output_is_refused(command, capsys, monkeypatch: pytest.MonkeyPatch):
    command(failing_with(AssertionError("not reached")))
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", None)  # as the interpreter has it
        assert cli.main(["try"]) == 2
    message = "standard output is closed; redirect it to /dev/null instead"
    assert capsys.readouterr().err == f"ode-transformer try: error: {message}\n"


def test_nothing_takes_the_place_of_closed_streams(command, monkeypatch: pytest.MonkeyPatch):
    def run(args) -> int:
        print("lost", file=sys.stderr)
        return len(sys.stdin.read())

    command(run)
    for stream in ("stdin", "stderr"):
        monkeypatch.setattr(sys, stream, None)
    assert cli.main(["try"]) == 0


def test_characters_that_the_locale_lacks_are_printed_as_escapes():
    program = (
        "from ode_transformer.cli import command\n"
        "command.importlib = type('Modules', (), {'import_module': lambda name: command})\n"
        "command.add_arguments = lambda parser: None\n"
        "command.run = lambda args: print('ä 中') or 0\n"
        "import sys\n"
        "command.main(['flags'])\n"
        "print(sys.stdout.errors)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(ode_transformer.__file__).parent.parent)}
    environment |= {"PYTHONIOENCODING": "latin-1"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
    assert done.stdout == "ä \\u4e2d\nstrict\n".encode("latin-1")


@pytest.mark.parametrize(
    "words",
    [
        ["curves", "./a.log", "--csv", "a.log"],
        ["average", "a.log", "b.log", "--output", "b.log"],
        ["translate", "--path", "a.log", "--input", "b.log", "--output", "a.log"],
        ["convert", "a.log", "--output", "a.log"],
        ["examples", "--system", "a=a.log", "--system", "b=b.log", "--lines", "1", "--output", "b.log"],
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


def test_two_outputs_are_two_files(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["curves", "run", "--output", "c.png", "--csv", "c.png"]) == 2
    assert "c.png: two outputs of this command have this name" in capsys.readouterr().err


def test_a_page_is_a_page(tmp_path: Path, capsys) -> None:
    assert cli.main(["report", str(tmp_path), "--output", str(tmp_path / "model.pt")]) == 2
    assert "model.pt: a page is a file with the end .html" in capsys.readouterr().err
