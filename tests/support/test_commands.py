import sys
from pathlib import Path

import pytest

from ode_transformer.support import commands
from ode_transformer.support.errors import UserError


def test_flags() -> None:
    options = {"lr": 0.005, "cpu": True, "fp16": False, "source-lang": None, "adam-betas": "(0.9, 0.98)", "seed": 0}
    assert commands.flags(options) == ["--lr", "0.005", "--cpu", "--adam-betas", "(0.9, 0.98)", "--seed", "0"]


def test_the_command_is_shown_as_a_shell_would_take_it(capsys: pytest.CaptureFixture[str]) -> None:
    commands.print_command(["fairseq-train", Path("a b"), "--adam-betas", "(0.9, 0.98)"], Path("x.log"))
    assert capsys.readouterr().out == "\n+ fairseq-train 'a b' --adam-betas '(0.9, 0.98)' > x.log 2>&1\n"


def python(code: str) -> list[str]:
    return [Path(sys.executable).name, "-c", code]


def test_output_goes_to_the_log_and_to_progress(tmp_path: Path) -> None:
    log, lines = tmp_path / "log", []
    commands.run(python("print('one'); print('two')"), log, lines.append)
    assert log.read_text() == "one\ntwo\n"
    assert lines == ["one\n", "two\n"]
    commands.run(python("print('three')"), log, append=True)
    assert log.read_text() == "one\ntwo\nthree\n"
    commands.run(python("print('four')"), log)
    assert log.read_text() == "four\n"


def test_a_failure_quotes_the_last_line_and_names_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(UserError, match=rf"failed, see {log}: ValueError: it is broken"):
        commands.run(python("raise ValueError('it is broken')"), log)
